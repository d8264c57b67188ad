"""A process that gives up its rights, as far as the system allows: no files, no network, no other programs, bounded memory."""

import ctypes
import os
import platform
import struct
import sys

LANDLOCK, SECCOMP, LIMITS = "landlock", "seccomp", "limits"

_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # the same numbers on every architecture
_THREAD = 0x10000  # CLONE_THREAD
_EACCES, _ENOSYS = 13, 38


class _Calls:
    """System calls of one architecture by number: calls that are refused, and the call that starts a thread or a process."""

    def __init__(self, audit: int, seccomp: int, clone: int, refused: tuple[int, ...]) -> None:
        self.audit, self.seccomp, self.clone, self.refused = audit, seccomp, clone, refused


_CLONE3 = 435
# open, creat, openat, openat2, open_by_handle_at; socket, socketpair, bind, listen, accept, connect; execve, execveat, fork, vfork;
# ptrace, process_vm_readv, process_vm_writev; io_uring_setup; truncate, rename*, mkdir*, rmdir, link*, unlink*, symlink*, mknod*,
# chmod*; kill
_ARCHITECTURES = {
    "x86_64": _Calls(
        0xC000003E, 317, 56,
        (2, 85, 257, 437, 304, 41, 53, 49, 50, 43, 42, 59, 322, 57, 58, 101, 310, 311, 425,
         76, 82, 264, 316, 83, 258, 84, 86, 265, 87, 263, 88, 266, 133, 259, 90, 268, 452, 62),
    ),
    "aarch64": _Calls(
        0xC00000B7, 277, 220,
        (56, 437, 265, 198, 199, 200, 201, 202, 203, 221, 281, 117, 270, 271, 425,
         45, 38, 276, 34, 37, 35, 36, 33, 53, 452, 129),
    ),
}  # fmt: skip


def lock(memory: int) -> list[str]:
    """Lock this process for good, with `memory` more bytes to allocate. The names of the locks that are active."""
    active = [LIMITS] if limit_resources(memory) else []
    if sys.platform != "linux":
        return active
    # Without it, only root may use Landlock and seccomp.
    if _libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return active
    # Landlock covers the calling thread and the threads that it starts; seccomp also threads that a library has started.
    return active + [LANDLOCK] * restrict_files() + [SECCOMP] * refuse_calls()


def limit_resources(memory: int) -> bool:
    """No file may grow, no core is dumped and, on Linux, `memory` bytes may be allocated beyond those in use."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return False
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if (used := allocated()) is not None:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = used + memory
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit) if most == resource.RLIM_INFINITY else (min(limit, most), most))
    return True


def limit_cpu(seconds: float) -> None:
    """End the process after this much more processor time, of all threads."""
    try:
        import resource
    except ImportError:
        return
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 1, most))


def allocated() -> int | None:
    """Bytes of private writable memory, as the system counts them against RLIMIT_DATA; None where it does not."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0 where it has none."""
    if sys.platform != "linux":
        return 0
    return max(int(_libc().syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))), 0)


def restrict_files() -> bool:
    """No file or folder may be opened, made, removed or run any more; no TCP from Landlock 4, no abstract socket or signal from 6."""
    version = landlock_version()
    if not version:
        return False
    # Each version has more rights: to move files (2), to truncate (3), TCP (4), devices (5), sockets and signals (6).
    files = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    rules = struct.pack("<QQQ", files, 3, 3)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    libc = _libc()
    handle = libc.syscall(_LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0))
    if handle < 0:
        return False
    active = libc.syscall(_LANDLOCK_RESTRICT, ctypes.c_int(handle), ctypes.c_uint32(0)) == 0
    os.close(handle)
    return bool(active)


def refuse_calls() -> bool:
    """Refuse the system calls that open files and sockets, run programs or start processes, in every thread. Threads may be started."""
    calls = _ARCHITECTURES.get(platform.machine()) if sys.maxsize > 1 << 32 else None
    if calls is None:
        return False
    program = _program(calls)
    code = ctypes.create_string_buffer(program, len(program))
    filters = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    every_thread = 1
    return bool(_libc().syscall(calls.seccomp, ctypes.c_uint(1), ctypes.c_uint(every_thread), filters) == 0)


def _program(calls: _Calls) -> bytes:
    """The filter in BPF, eight bytes per instruction: code, instructions to skip if true and if false, operand."""
    load, equal, at_least, has, leave = 0x20, 0x15, 0x35, 0x45, 0x06
    number, architecture, flags = 0, 4, 16  # offsets in the kernel's description of a call
    allow, refuse, unknown = (leave, 0, 0, 0x7FFF0000), (leave, 0, 0, 0x50000 | _EACCES), (leave, 0, 0, 0x50000 | _ENOSYS)
    steps = [(load, 0, 0, architecture), (equal, 1, 0, calls.audit), refuse]
    steps += [(load, 0, 0, number), (at_least, 0, 1, 0x40000000), refuse]  # x32, another set of numbers
    for call in calls.refused:
        steps += [(equal, 0, 1, call), refuse]
    # A clone that begins no thread begins a process. The flags of clone3 cannot be seen: without it the C library uses clone.
    steps += [(equal, 0, 1, _CLONE3), unknown]
    steps += [(equal, 0, 3, calls.clone), (load, 0, 0, flags), (has, 1, 0, _THREAD), refuse, allow]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
