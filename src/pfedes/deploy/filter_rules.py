"""The rules of the filter in a participant's workspace: everything its consents let leave."""

from typing import Any

from pfedes.config import Config
from pfedes.config.participant import Participant
from pfedes.core.payload import Max, TensorSpec
from pfedes.core.protocol import MEASURES, SCORES_META
from pfedes.deploy.participant.handler import own_config, tells_measures
from pfedes.deploy.sum_messages import masked_spec, opened_spec
from pfedes.deploy.versions import TOLD
from pfedes.errors import MethodError, ModelError
from pfedes.fleet.allow_list import reply_spec, summand_size
from pfedes.population.consent import Consent
from pfedes.population.simulation import Simulation
from pfedes.securesum.masking import MOST_MEMBERS

FRAME = ["kind", "client", "reason", "versions"]
UNASKED = ["card", *TOLD, "noted"]  # answers to an enrolment and to the last notice


def allowed_by(participant: Participant, terms: Config) -> dict[str, Any]:
    """Everything that any method consented to would send, for the site's filter."""
    tensors: dict[str, list[dict[str, Any]]] = {}
    values = {*FRAME, *(f"up/{name}" for name in UNASKED)}
    if terms.privacy.metadata != "none":
        values |= SCORES_META.keys()
    if tells_measures(participant, terms.federation):
        values.add(MEASURES)
    consent = Consent(
        participant.methods, participant.consents, participant.limits, participant.share
    )
    tree = terms.model_dump(mode="json", exclude={"method"})
    for name in participant.methods:
        agreed = {"name": name, **consent.keys_of(name)}
        try:
            simulation = Simulation(own_config({**tree, "method": agreed}, participant))
            ctx = simulation.context(1)
            card = simulation.population.card(participant.name, simulation.method.needs)
            spec = reply_spec(simulation.method, card, ctx, over_network=True)
        except (MethodError, ModelError):
            if name == terms.method.name:
                raise
            continue  # [privacy], such inputs or such a model exclude it: it sends nothing
        leaving = [spec]
        if ctx.summed != "no":
            size = summand_size(simulation.method.allowed(card, ctx).up, ctx)
            leaving += [masked_spec(size, Max(MOST_MEMBERS)), opened_spec(Max(MOST_MEMBERS))]
        for spec in leaving:
            values |= {f"up/{key}" for key in spec.meta}
            for group in spec.groups:
                for option in group.options:
                    for key, tensor in option.items():
                        tensors.setdefault(key, []).append(_form(tensor))
    limit = participant.limits.floats
    return {"tensors": tensors, "values": sorted(values), "floats": limit}


def _form(tensor: TensorSpec) -> dict[str, Any]:
    shape = [{"most": size.limit} if isinstance(size, Max) else size for size in tensor.shape]
    return {"shape": shape, "dtype": str(tensor.dtype).removeprefix("torch.")}
