"""Bodies of the stages that pipelines are made of, and how a pipeline lists them."""
