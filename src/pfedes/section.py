"""The base of every configuration section."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen settings of one concern; a misspelt key or a NaN is an error, never ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        populate_by_name=True,  # `lambda` is no name in Python: fields may have an alias
        serialize_by_alias=True,
    )
