"""Takes over the selection that recorded devices were measured with, so that all devices train the same models."""

import dataclasses
from typing import Any

from workflow_scripts.lib.candidates import Candidate, Predict, field, overruns
from workflow_scripts.lib.quantities import listing
from workflow_scripts.lib.selection import Choice, describe
from workflow_scripts.lib.specs import ModelShape, from_json


def adopt(
    recorded: dict[str, dict[str, Any]],
    wanted: dict[str, Any],
    vocab_size: int,
    sequence_length: int,
    predict: Predict,
    local: list[str],
) -> Choice:
    """Gives the recorded choice, with what it would cost here; a budget that it overruns is told, and bars nothing.

    Args:
        recorded: selection.json of each recorded device, which agree in the models.
        wanted, vocab_size, sequence_length, predict: as for `selection.choose`.
        local: ids of the local devices, whose budgets are checked.
    """
    theirs = next(iter(recorded.values()))
    candidates, _ = field(wanted, vocab_size, sequence_length, predict)
    roles = {}
    for role, chosen in theirs["roles"].items():
        shape = from_json(ModelShape, chosen["shape"])
        cost = predict(shape)
        here = {device: value for device, value in cost.items() if device in local}
        over = tuple(overruns(here, wanted["budgets"]))
        roles[role] = Candidate(shape=shape, size=chosen["size"], cost=cost, overruns=over)
    over_budget = [
        {"role": role, **dataclasses.asdict(overrun)}
        for role, candidate in roles.items()
        for overrun in candidate.overruns
    ]
    reasons = [f"The models are those that {listing(recorded)} recorded; why they were chosen there:"]
    selection = {
        **theirs,
        "adopted_from": list(recorded),
        "over_budget": over_budget,
        "budgets": wanted["budgets"],
        "roles": {role: describe(candidate) for role, candidate in roles.items()},
        "reasons": [*reasons, *theirs.get("reasons", []), *(f"Over a budget: {one['text']}." for one in over_budget)],
    }
    return Choice(roles=roles, selection=selection, field=candidates)
