"""How a run is carried out: processes, devices, clusters."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pfedes.section import Section


class RuntimeConfig(Section):
    """How a run is carried out. Changes speed, never results."""

    fleet: Literal["serial", "workers", "cluster"] = Field(
        "workers", description="workers (processes on this machine) | serial | cluster"
    )
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="number of worker processes; auto = one per core"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto",
        description="device that clients train on: auto (a GPU if there is one) | cpu | cuda | mps",
    )
    threads: int = Field(
        1, ge=1, description="threads per client; results are bit-identical only for the same value"
    )
    keep_rounds: int = Field(
        2, ge=1, description="number of past rounds from which a run can be resumed"
    )
    report: bool = Field(
        True, description="write report.html at the end; 'pfedes report' writes it at any time"
    )
    cluster: str = Field(
        "",
        pattern=r"^$|^(tls|tcp)://[^\s/]+:[0-9]+$",
        description="address of a Dask scheduler: tls://host:port",
    )
    tls_ca: str = Field("", description="certificate of the cluster's authority; '' = Dask's own")
    tls_cert: str = Field("", description="certificate of this machine for the cluster")
    tls_key: str = Field("", description="its private key")
    mixed_hardware: bool = Field(
        False, description="let nodes with other processors join; results may then differ in bits"
    )
    share_directory: bool = Field(
        True,
        description="let nodes that see the run directory keep states in it; false: states "
        "always travel",
    )
    deadline: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="seconds after which the task of a silent node also goes to another node",
    )
    wait_for_nodes: float = Field(
        300, ge=0, description="seconds to wait for a node of the cluster when there is none"
    )

    @model_validator(mode="after")
    def _complete(self) -> "RuntimeConfig":
        if self.fleet == "cluster" and not self.cluster:
            raise ValueError("fleet = 'cluster' needs cluster = 'tls://host:port' (or --cluster)")
        given = [bool(path) for path in (self.tls_ca, self.tls_cert, self.tls_key)]
        if any(given) and not all(given):
            raise ValueError("tls_ca, tls_cert and tls_key belong together: give all three")
        if any(given) and not self.cluster:
            raise ValueError("certificates (--tls) are of use only with a cluster: give --cluster")
        return self
