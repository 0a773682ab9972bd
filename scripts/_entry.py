"""What all entries share: errors of ours in one line, Ctrl-C without a traceback."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from typing import Any

from hydra.errors import HydraException
from safetensors import SafetensorError

from arlas.text import plain
from arlas.types import ArlasError
from envs.base import WorldError


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turns expected errors into one line on stderr and an exit code: 2 ours, 130 interrupted."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        signal.signal(signal.SIGTERM, _terminate)
        try:
            return function(*args, **kwargs)
        except (ArlasError, WorldError, OSError, SafetensorError, HydraException) as error:
            print(f"error: {plain(str(error))}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            print(
                "stopped; the same command continues behind what is already whole", file=sys.stderr
            )
            sys.exit(130)

    return wrapped


def _terminate(*_: object) -> None:
    """Ends like Ctrl-C, also where a shell started the job in the background and so switched Ctrl-C off."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
