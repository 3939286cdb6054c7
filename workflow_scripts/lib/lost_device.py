"""A GPU that vanishes while something is measured on it: no result, and no record that would stand for one."""

from typing import Any

from workflow_scripts.lib import nvml as nvml_library
from workflow_scripts.lib.outcome import Outcome
from workflow_scripts.lib.specs import DeviceSpec

# What the CUDA runtime and the driver say of a device that no longer answers (CUDA Runtime API, error codes; XID 79).
_SAID = (
    "no cuda-capable device is detected",
    "gpu is lost",
    "fallen off the bus",
    "cuda error: unknown error",
    "uncorrectable ecc error",
    "invalid device ordinal",
)


class DeviceLost(RuntimeError):
    """The device does not answer any more: the measurement is to be made again."""


def present(device: DeviceSpec, outcome: Outcome, *, nvml: Any | None = None) -> Outcome:
    """Gives back the outcome of a measurement, unless it failed for a device that is gone.

    Raises:
        DeviceLost: the driver no longer finds the GPU, or the error says so; in one line, with what to do.
    """
    if device.type != "cuda" or outcome.status not in ("error", "killed", "timeout", "unavailable"):
        return outcome
    said = next((words for words in _SAID if words in outcome.reason.lower()), None)
    if said is None and _answers(device, nvml if nvml is not None else nvml_library.load()):
        return outcome
    raise DeviceLost(
        f"device {device.id} ({device.torch_name}) does not answer any more "
        f"({said or 'its driver finds it no longer'}): what was measured before is kept; bring it back, as by a "
        "restart, and run again, which measures what is missing"
    )


def _answers(device: DeviceSpec, nvml: Any | None) -> bool:
    """Whether the driver still finds the GPU; where no driver can be asked, it is not held against the device."""
    if nvml is None:
        return True
    handles = nvml_library.visible_handles(nvml)
    index = device.index or 0
    return index < len(handles) and nvml_library.ask(nvml.nvmlDeviceGetMemoryInfo, handles[index]) is not None
