"""The system calls that a sandbox refuses (with EPERM), as a seccomp program.

Refused is memory that no process's resident size shows (memfd, System V and POSIX queues, shared anonymous mappings,
which outlive being unmapped by those that filled them), ways into other processes, sockets that are neither Unix nor
IP (a vsock leaves the network namespace), and doors of the kernel that no script needs.

Changing permissions does nothing: where root runs the sandbox, the machine's own /dev/null would belong to the code.
"""

from __future__ import annotations

import functools
import platform
import struct

# of each architecture: its audit number, socket, prlimit64, mmap, what is always refused, and what does nothing
_CALLS = {
    "x86_64": (0xC000003E, 41, 302, 9, "319 447 29 68 64 240 425 426 427 248 249 250 321 298 323 101 310 311 272 308 165 304 438 "
               "188 189 190 463", "90 91 268 452"),
    "aarch64": (0xC00000B7, 198, 261, 222, "279 447 194 186 190 180 425 426 427 217 218 219 280 241 282 117 270 271 97 268 40 265 438 "
                "5 6 7 463", "52 53 452"),
}  # fmt: skip
# memfd_create, memfd_secret, shmget, msgget, semget, mq_open, io_uring_setup, _enter, _register, add_key, request_key,
# keyctl, bpf, perf_event_open, userfaultfd, ptrace, process_vm_readv, _writev, unshare, setns, mount,
# open_by_handle_at, pidfd_getfd, setxattr, lsetxattr, fsetxattr, setxattrat; chmod, fchmod, fchmodat, fchmodat2

_LOAD, _EQUAL, _LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NO, _YES, _NOTHING = ((_RETURN, 0, 0, answer) for answer in (0x00050001, 0x7FFF0000, 0x00050000))
_X32 = 0x40000000
_SHARED_ANONYMOUS = 0x21
_UNIX, _INET, _INET6 = 1, 2, 10


@functools.cache
def program() -> bytes:
    """The program for ``bwrap --seccomp``. LookupError on an architecture that is not known."""
    arch, socket, prlimit, mmap, refused, idle = _CALLS[platform.machine()]
    # loaded are: 4 the architecture, 0 the call, 16 and 40 its arguments 0 and 3
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, arch), _NO]
    steps += [(_LOAD, 0, 0, 0), (_LEAST, 0, 1, _X32), _NO]
    for number in refused.split():
        steps += [(_EQUAL, 0, 1, int(number)), _NO]
    for number in idle.split():
        steps += [(_EQUAL, 0, 1, int(number)), _NOTHING]
    steps += [(_EQUAL, 0, 6, socket), (_LOAD, 0, 0, 16), (_EQUAL, 3, 0, _UNIX)]
    steps += [(_EQUAL, 2, 0, _INET), (_EQUAL, 1, 0, _INET6), _NO, _YES]
    # its own limits only
    steps += [(_EQUAL, 0, 4, prlimit), (_LOAD, 0, 0, 16), (_EQUAL, 0, 1, 0), _YES, _NO]
    steps += [(_EQUAL, 0, 4, mmap), (_LOAD, 0, 0, 40), (_AND, 0, 0, _SHARED_ANONYMOUS)]
    steps += [(_EQUAL, 0, 1, _SHARED_ANONYMOUS), _NO, _YES]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
