"""One result as a JSON file, read back to an equal value; a file that is something else is one clear error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from plansmith.errors import BadInputError

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class JsonFile(Generic[ResultT]):
    """How a type of results is kept, and in a file of what name."""

    type: type[ResultT]
    name: str

    def write(self, results: ResultT) -> str:
        """Return the text of the file."""
        return self._adapter.dump_json(results, indent=2).decode() + "\n"

    def read(self, text: str) -> ResultT:
        """Return the results in a text.

        Raises:
            BadInputError: not JSON, or not these results.
        """
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise BadInputError(
                "these are not the results of a run of this pipeline",
                where=self.name,
                got=f"{place}: {first['msg']}",
                expected=f"the {self.name} that a finished run writes",
                cure="give the command of the run again; what is finished is reused",
            ) from error

    @cached_property
    def _adapter(self) -> TypeAdapter[ResultT]:
        """Return the reader and writer, built at first use."""
        return TypeAdapter(self.type)
