"""An invented domain as the files of a domain folder, as `plansmith.problems.library.load_domain` takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import yaml

from plansmith.config.domains import DomainSettings
from plansmith.pddl.diagnosis import used_features
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.printer import print_domain, print_problem

INVENTED = "invented"
"""Level and source of problems of invented domains, in tables."""

EXAMPLES = "problems"
"""The folder of the problems to start from, where there are any."""


@dataclass(frozen=True)
class Invention:
    """A domain with how its problems are drawn, and what it was made of."""

    domain: Domain
    settings: DomainSettings
    source: str
    """``state variables``, or the domains that it was bred from."""
    examples: tuple[Problem, ...] = ()

    def files(self) -> Mapping[str, str]:
        """Return the texts of the folder's files by their paths in it."""
        settings = yaml.safe_dump(self.settings.model_dump(mode="json", exclude_defaults=True), sort_keys=False,
                                  default_flow_style=None, width=120)  # fmt: skip
        head = f"# Invented: {self.source}.\nsampler: walk\n"
        examples = {f"{EXAMPLES}/p{number:02d}.pddl": print_problem(problem)
                    for number, problem in enumerate(self.examples, 1)}  # fmt: skip
        return {"domain.pddl": print_domain(self.domain), "settings.yaml": head + settings, **examples}


def with_requirements(domain: Domain) -> Domain:
    """Return a domain that announces what it uses."""
    used = dict.fromkeys([":strips", *(flag for flag, _ in used_features(domain))])
    return replace(domain, requirements=tuple(used))
