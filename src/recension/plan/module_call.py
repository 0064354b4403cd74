"""A call of a user's module: the module with its parameters, and the expressions mapped to its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recension.core.errors import SchemaError
from recension.modules.module import Module
from recension.plan.expressions import column, expression, result_type
from recension.plan.node import Outputs
from recension.plan.schemas import schema_of, type_of
from recension.plan.span import in_words
from recension.plan.type_names import type_name


@dataclass(frozen=True)
class ModuleCall:
    """What the module reads of each event, by the names it knows, in the types it declares."""

    module: Module
    inputs: Outputs
    types: tuple[pa.DataType, ...]

    @property
    def references(self) -> frozenset[str]:
        """The columns it reads."""
        return frozenset().union(*(computed.references for _, computed in self.inputs))

    def value_type(self) -> pa.DataType:
        """The type of the value it gives."""
        return type_of(_declared(self.module), f"{self.module.name}: result")

    def row_schema(self) -> pa.Schema:
        """The columns of the rows it gives."""
        return schema_of(_declared(self.module), f"{self.module.name}: result")

    def __str__(self) -> str:
        parameters = [f"{name}={value!r}" for name, value in self.module.parameters.items()]
        inputs = [in_words(self.inputs).replace(" = ", "=")] if self.inputs else []
        return f"{self.module.name}({', '.join([*inputs, *parameters])})"


def call_of(module: Module, schema: pa.Schema) -> ModuleCall:
    """The module over events of this schema; what is not mapped is the column of that name."""
    declared: Mapping[str, Any] | None = module.inputs
    if declared is None:
        names = [name for name in schema.names if name not in module.ignores]
        mapped = module.mapping or {name: column(name) for name in names}
        declared = dict.fromkeys(mapped)
    else:
        mapped = {name: module.mapping.get(name, column(name)) for name in declared}
    inputs = tuple((name, expression(value)) for name, value in mapped.items())
    types = tuple(_handed_over(module, name, e, declared[name], schema) for name, e in inputs)
    return ModuleCall(module, inputs, types)


def checked_types(call: ModuleCall, schema: pa.Schema) -> None:
    """Raise unless the inputs can be computed from events of this schema."""
    for name, computed in call.inputs:
        result_type(computed, schema, f"{call.module.name}({name}={computed})")


def _handed_over(module: Module, name: str, computed: Any, declared: Any, schema: pa.Schema) -> pa.DataType:
    given = result_type(computed, schema, f"{module.name}({name}={computed})")
    if declared is None:
        return given
    wanted = type_of(declared, f"{module.name}: input {name!r}")
    if given == wanted or _widens(given, wanted):
        return wanted
    raise SchemaError(
        f"{module.name}: the input {name!r} is {type_name(wanted)}, but {computed} is {type_name(given)}; "
        "map another expression, or cast it"
    )


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Are values of the one type values of the other too? (Whole numbers that no float holds are refused
    when they come.)
    """
    if pa.types.is_floating(wanted):
        return pa.types.is_integer(given) or (pa.types.is_floating(given) and _bits(given) <= _bits(wanted))
    if pa.types.is_signed_integer(wanted):
        return pa.types.is_signed_integer(given) and _bits(given) <= _bits(wanted)
    text = (pa.string(), pa.large_string())
    return given in text and wanted in text


def _bits(kind: pa.DataType) -> int:
    return int(kind.bit_width)


def _declared(module: Module) -> Any:
    if not hasattr(module, "result"):
        raise SchemaError(f"{module.name}: declare what it gives, as in result = 'float64'")
    return module.result
