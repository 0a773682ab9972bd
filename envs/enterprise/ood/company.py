"""Organizations of other industries, with people of their own."""

from __future__ import annotations

import random

from envs.enterprise.company import Company
from envs.enterprise.company import found as found_company
from envs.enterprise.workspace import Workspace

FIRST = tuple(
    "Aoife Bronwyn Callum Deirdre Eoin Fergus Gwyneth Hamish Isla Jarlath Kiri Lachlan Maeve Niamh Orla Padraig Rhys "
    "Saoirse Tane Una Wiremu Yvaine Anahera Cormac Eilidh Finlay".split()
)
LAST = tuple(
    "Abernathy Brannigan Cadwallader Donnelly Erskine Fairbairn Gallagher Heneghan Inglis Jardine Kinsella Lockhart "
    "MacAllister Ngata OShea Pritchard Quinlan Rafferty Sinclair Tregarth Urquhart Vaughan Whelan Yarrow".split()
)
NAMES = (
    "Halcyonhealth",
    "Volterragrid",
    "Meridiantel",
    "Portolan",
    "Cinderhill",
    "Saltmarsh",
    "Brambleclinic",
    "Lodestar",
)
CLIENTS = (
    *(
        "Agatha Plimsoll",
        "Barnaby Thrupp",
        "Clementine Oddy",
        "Dorian Skeffington",
        "Euphemia Latch",
    ),
    *("Fitzroy Mumby", "Gwendolen Spratt", "Horatio Bunce", "Isadora Wimple", "Jocasta Fry"),
)
FIRMS = (
    "Wexcombe Freight",
    "Ullapool Cables",
    "Trefoil Turbines",
    "Skerry Lines",
    "Pendle Optics",
    "Orkney Wind",
)


def found(workspace: Workspace, rng: random.Random) -> Company:
    """Draws an organization and enters its people into the directory."""
    return found_company(workspace, rng, size=10, firsts=FIRST, lasts=LAST, names=NAMES)
