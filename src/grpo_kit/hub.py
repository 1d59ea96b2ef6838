"""Is the model hub within reach? Where it is not, its libraries use what is cached, at once and without retries."""

import os
import ssl
import sys
import urllib.error
import urllib.request

WAIT_S = 5.0


def use_cache_if_unreachable() -> bool:
    """Ask the hub for one answer; without one, switch the hub's libraries offline. True where it answered.

    To be called before huggingface_hub is imported, which reads the switch then. What the user has set stays.
    """
    if "HF_HUB_OFFLINE" in os.environ:
        return False
    request = urllib.request.Request(os.environ.get("HF_ENDPOINT", "https://huggingface.co"), method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=WAIT_S).close()
    except urllib.error.HTTPError:
        return True  # an answer all the same
    except (OSError, ValueError) as error:
        if isinstance(getattr(error, "reason", None), ssl.SSLError):
            return True  # it is there; whether its certificate is trusted is for the hub's own client to say
        os.environ["HF_HUB_OFFLINE"] = "1"
        if "huggingface_hub" in sys.modules:
            sys.modules["huggingface_hub"].constants.HF_HUB_OFFLINE = True
        return False
    return True
