"""Logistics problems: cities with a truck and an airport each, airplanes, and packages that all have a destination."""

from __future__ import annotations

import random

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered


def sample(rng: random.Random, *, packages: int, airplanes: int, cities: int, locations: int) -> Problem:
    """Return a problem; start and destination of each package are uniform and independent.

    Solvable: a truck reaches every location of its city, one location of each city is an airport, and there is an
    airplane, so every package can get everywhere.
    """
    city_names = numbered("c", cities, start=0)
    places = {city: numbered(f"l{city[1:]}-", locations, start=0) for city in city_names}
    trucks = {f"t{city[1:]}": city for city in city_names}
    airports = [rng.choice(places[city]) for city in city_names]
    everywhere = [place for city in city_names for place in places[city]]
    planes, parcels = numbered("a", airplanes, start=0), numbered("p", packages, start=0)
    init = _kinds({"obj": parcels, "truck": list(trucks), "airplane": planes, "location": everywhere,
                   "airport": airports, "city": city_names})  # fmt: skip
    init += [atom("in-city", place, city) for city in city_names for place in places[city]]
    init += [atom("at", truck, rng.choice(places[city])) for truck, city in trucks.items()]
    init += [atom("at", plane, rng.choice(airports)) for plane in planes]
    init += [atom("at", parcel, rng.choice(everywhere)) for parcel in parcels]
    goal = [atom("at", parcel, rng.choice(everywhere)) for parcel in parcels]
    return build_problem("logistics", [*city_names, *trucks, *planes, *everywhere, *parcels], init, goal)


def _kinds(members: dict[str, list[str]]) -> list[Atom]:
    return [atom(kind, name) for kind, names in members.items() for name in names]
