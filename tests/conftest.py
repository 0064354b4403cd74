"""How hard Hypothesis tries: ``HYPOTHESIS_PROFILE=thorough`` for a long search, the same examples in CI."""

import os

from hypothesis import Phase, settings

settings.register_profile("dev", max_examples=60, deadline=None)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=3000)
# Finds failures fast and does not make them smaller.
settings.register_profile("hunt", settings.get_profile("dev"), phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
