# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, with the words of the C++ library; each kind is also Python's own for it."""

from __future__ import annotations


class Error(Exception):
    """Everything that paoding raises by itself."""

    kind = ''


class ShapeError(Error, ValueError):
    """Extents, ranks or axes do not fit."""

    kind = 'shape'


class DtypeError(Error, TypeError):
    """An element type that is not taken."""

    kind = 'dtype'


class ArgumentError(Error, ValueError):
    """An attribute, name or option that is out of range or unknown."""

    kind = 'argument'


class NotFoundError(ArgumentError, KeyError):
    """A name that a store does not have."""

    __str__ = Exception.__str__  # KeyError's shows the text as a literal


class UnsupportedError(Error, NotImplementedError):
    """Legal, but no kernel or device does it."""

    kind = 'unsupported'


class DeviceError(Error, RuntimeError):
    """A GPU, driver or library call failed."""

    kind = 'device'


class FileError(Error, OSError):
    """A file or text from outside is missing, truncated or malformed."""

    kind = 'file'


class CancelledError(Error):
    """Called off."""

    kind = 'cancelled'


_classes: dict[str, type[Error]] = {
    each.kind: each
    for each in (ShapeError, DtypeError, ArgumentError, UnsupportedError, DeviceError, FileError, CancelledError)
}


def of_kind(kind: str, message: str) -> Error:
    """The exception of an error of the C++ library."""
    return _classes.get(kind, Error)(message)
