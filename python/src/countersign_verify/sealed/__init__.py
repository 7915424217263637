"""
Seals requests to a Countersign gateway in an attested machine, so that anybody who stands between sees ciphertext.

```python
from countersign_verify.sealed import sealed_client

client = openai.OpenAI(base_url="https://example.com/v1", http_client=sealed_client(collateral=…, cpu=…))
```
"""

from importlib.util import find_spec

if find_spec("pyhpke") is None:
    raise ImportError("countersign_verify.sealed needs pyhpke: pip install 'countersign-verify[sealed]'")

from .client import sealed_async_client, sealed_client
from .errors import SealedError
from .transport import AsyncSealedTransport, SealedTransport

__all__ = ["AsyncSealedTransport", "SealedError", "SealedTransport", "sealed_async_client", "sealed_client"]
