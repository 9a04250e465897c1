"""What servers refuse: the rules of each dialect, written once for strict fake servers and for diagnosis.

A rule reports to a `Report`. The fake servers of `antiphon.testing` raise at the first violation and answer in the
provider's words; `antiphon.diagnosis` collects all violations and explains them. Rules know no server state: keys,
model lists and issued signatures belong to the fake servers.
"""

from antiphon.rules.report import Report, Rule, Violation

__all__ = ["Report", "Rule", "Violation"]
