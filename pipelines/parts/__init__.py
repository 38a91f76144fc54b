"""Bodies of the stages that pipelines are made of, and the actors they work with."""
