"""Problem samplers, one module a domain: ``sample(rng, **sizes)`` returns a problem that has a plan.

The keyword arguments of ``sample`` are the sizes that the domain's ``settings.yaml`` gives ranges for. What every
domain needs (drawing sizes, refusing goals that hold already, shuffling) is in `plansmith.problems.library`.
"""
