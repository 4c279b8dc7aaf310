"""Watts of the GPUs of this machine, as NVIDIA's management library says.

Loaded by name at run time, so that nothing has to be installed where there is none. Calls and
types are those of nvml.h.
"""

from __future__ import annotations

import ctypes

from geokv.errors import MeterError

LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96
_SUCCESS = 0


class Nvml:
    """Reads the power of every GPU that tells it.

    Args:
        library: name or path for the loader.

    Raises:
        MeterError: no library, no driver, or no GPU that says what it draws.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._nvml = ctypes.CDLL(library)
        except OSError as error:
            raise MeterError(f"{library} cannot be loaded ({error})") from None
        self._nvml.nvmlErrorString.restype = ctypes.c_char_p
        self._call("nvmlInit_v2")
        self.names: list[str] = []
        self._handles: list[ctypes.c_void_p] = []
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for number in range(count.value):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))
            name = ctypes.create_string_buffer(_NAME_BYTES)
            self._call("nvmlDeviceGetName", handle, name, ctypes.c_uint(_NAME_BYTES))
            self._handles.append(handle)
            self.names.append(name.value.decode())
        if not self._handles:
            raise MeterError("the driver knows no GPU")
        self.power_mw()

    def power_mw(self) -> list[int]:
        """Of each GPU, mW. Boards average it: up to 1 s before Hopper and on H100.

        Raises:
            MeterError: a GPU does not say.
        """
        found = []
        for handle in self._handles:
            power = ctypes.c_uint()
            self._call("nvmlDeviceGetPowerUsage", handle, ctypes.byref(power))
            found.append(power.value)
        return found

    def close(self) -> None:
        """Let go of the driver's library."""
        self._nvml.nvmlShutdown()

    def _call(self, name: str, *args: object) -> None:
        status = getattr(self._nvml, name)(*args)
        if status != _SUCCESS:
            said = self._nvml.nvmlErrorString(ctypes.c_int(status))
            raise MeterError(f"{name}: {said.decode() if said else status}")
