"""Device memory that the verifier's PyTorch process owns and lends to the candidate's process.

The owner draws inputs, poisons outputs, and reads results where they lie, so gigabytes never cross to the host. A region is
one allocation with its tensors between red zones; its layout comes from src/run/region.cpp. On a GPU the memory comes from
the CUDA driver's virtual memory management, whose handles travel as file descriptors; on the CPU (tests) from a memfd.
"""

import ctypes
import mmap
import os

import torch

RED_ZONE = 0xFFF7  # 16 bits, phase by absolute offset; run/protocol.h


class DeviceError(Exception):
    """A CUDA driver call failed; the text names it."""


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationFlags(ctypes.Structure):
    _fields_ = [("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)]


class _Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location), ("win32", ctypes.c_void_p), ("flags", _AllocationFlags)]


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


_PINNED, _POSIX_DESCRIPTOR, _DEVICE, _READ_WRITE = 1, 1, 1, 3


class _Bytes:
    """What torch.as_tensor needs to see a raw device address as bytes."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 2}


class _Driver:
    def __init__(self, index):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.index = index
        torch.zeros(1, device=f"cuda:{index}")  # the primary context, current on this thread

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise DeviceError(f"{name} failed with CUDA driver error {code}.")

    def allocate(self, size):
        properties = _Properties(_PINNED, _POSIX_DESCRIPTOR, _Location(_DEVICE, self.index), None)
        unit = ctypes.c_size_t()
        self.call("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(properties), 0)
        size = (size + unit.value - 1) // unit.value * unit.value
        handle, address, fd = ctypes.c_ulonglong(), ctypes.c_ulonglong(), ctypes.c_int(-1)
        self.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_ulonglong(0))
        self.call("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(0), ctypes.c_ulonglong(0))
        self.call("cuMemMap", address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
        access = _Access(_Location(_DEVICE, self.index), _READ_WRITE)
        self.call("cuMemSetAccess", address, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
        self.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _POSIX_DESCRIPTOR, ctypes.c_ulonglong(0))
        return torch.as_tensor(_Bytes(address.value, size), device=f"cuda:{self.index}"), fd.value


def _allocate_on_host(size):
    size = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    fd = os.memfd_create("stitch-region")
    os.ftruncate(fd, size)
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8), fd


class Arena:
    """Regions by name. `bytes` of a region are those of its allocation, which the candidate maps whole."""

    def __init__(self, device):
        self.device = device
        self.driver = _Driver(device.index or 0) if device.type == "cuda" else None
        self.regions = {}

    def create(self, name, size, tensors):
        """tensors: [(offset, bytes, dtype, shape)] in rising order. Returns the region and the descriptor to send (the
        receiver's copy; close it after sending)."""
        memory, fd = self.driver.allocate(size) if self.driver else _allocate_on_host(size)
        region = Region(memory, tensors)
        self.regions[name] = region
        return region, fd


class Region:
    def __init__(self, memory, tensors):
        self.memory = memory
        self.views, self.gaps = [], []
        end = 0
        for offset, size, dtype, shape in tensors:
            flat = memory[offset:offset + size]
            self.views.append(flat.view(dtype).reshape(shape))
            self.gaps.append((end, offset))
            end = offset + size
        self.gaps.append((end, memory.numel()))
        pattern = memory.new_tensor([RED_ZONE & 0xFF, RED_ZONE >> 8])
        for start, stop in self.gaps:
            memory[start:stop] = self._pattern(pattern, start, stop)

    @staticmethod
    def _pattern(pattern, start, stop):
        return pattern.repeat((stop - start) // 2 + 2)[start % 2:start % 2 + stop - start]

    def damage(self):
        """(tensor, offset relative to its start) of a red-zone byte that changed, or None. A gap belongs to the tensor before
        it in its first half and to the one after it in its second."""
        if not self.views:
            return None
        pattern = self.memory.new_tensor([RED_ZONE & 0xFF, RED_ZONE >> 8])
        changed = torch.stack([(self.memory[a:b] != self._pattern(pattern, a, b)).any() for a, b in self.gaps]).tolist()
        if not any(changed):
            return None
        at = changed.index(True)
        start, stop = self.gaps[at]
        first = start + int((self.memory[start:stop] != self._pattern(pattern, start, stop)).nonzero()[0])
        tensor = at if at < len(self.views) and (at == 0 or first - start > (stop - start) // 2) else at - 1
        origin = self.gaps[tensor][1]
        return tensor, first - origin

    def poison(self, pattern):
        """Fills every tensor with a repeated 16-bit pattern."""
        value = pattern - 0x10000 if pattern >= 0x8000 else pattern
        for view in self.views:
            flat = view.reshape(-1).view(torch.uint8)
            even = flat.numel() // 2 * 2
            flat[:even].view(torch.int16).fill_(value)
            if even < flat.numel():
                flat[even:] = pattern & 0xFF


def bits(tensor):
    """The tensor's bytes as the widest integers that its size allows, flat: equality of bits, NaNs included."""
    flat = tensor.contiguous().reshape(-1)
    if flat.dtype == torch.bool:
        flat = flat.view(torch.uint8)
    size = flat.numel() * flat.element_size()
    for dtype, width in ((torch.int64, 8), (torch.int32, 4), (torch.int16, 2)):
        if size % width == 0 and flat.storage_offset() * flat.element_size() % width == 0:
            return flat.view(dtype)
    return flat.view(torch.uint8)


def first_difference(a, b, chunk=1 << 27):
    """Byte index of the first difference between two tensors of one type (to the width compared), or None."""
    x, y = bits(a), bits(b)
    if x.dtype != y.dtype:
        x, y = x.view(torch.uint8), y.view(torch.uint8)
    for start in range(0, x.numel(), chunk):
        different = x[start:start + chunk] != y[start:start + chunk]
        if bool(different.any()):
            return (start + int(different.nonzero()[0])) * x.element_size()
    return None


def digest(tensors, whole=1 << 24):
    """64 bits that tell results apart: a position-weighted sum of the words, modulo 2^64; of long tensors the plain sum of all
    words and the weighted one of every n-th."""
    total = 0
    for k, tensor in enumerate(tensors):
        words = bits(tensor)
        if words.numel() > whole:
            total = (total * 31 + int(words.sum(dtype=torch.int64))) % (1 << 64)
            words = words[::words.numel() // whole]
        part = words.to(torch.int64)
        places = torch.arange(part.numel(), device=part.device, dtype=torch.int64)
        start = (1442695040888963407 * (k + 1) + (1 << 63)) % (1 << 64) - (1 << 63)  # as a signed word, for any number of tensors
        mixed = (part ^ (part >> 29)) * ((places * -7046029254386353131 + start) | 1)
        total = (total + int((mixed ^ (mixed >> 31)).sum())) % (1 << 64)
    return f"{total:016x}"
