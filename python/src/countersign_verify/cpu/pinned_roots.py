"""
The roots that are pinned: AMD's, one for each product, and Intel's. A trust anchor is a name and a key (RFC 5280
§6.1.1), so each stands here as the signed part of its certificate, base64 of DER; a root's signature of itself proves
nothing.
"""

from collections.abc import Sequence
from functools import cache

from ..proto.bytes import from_base64
from ..x509 import Certificate, parse_certificate

# As AMD's key service gives them at /vcek/v1/PRODUCT/cert_chain; VCEK and VLEK stand under the same ones.
AMD = (
    # ARK-Milan, of which the SHA-256 is 69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd
    # google/go-sev-guest@af1c107a648f:verify/trust/ask_ark_milan.pem
    (
        "MIIEEqADAgECAgMBAAAwRgYJKoZIhvcNAQEKMDmgDzANBglghkgBZQMEAgIFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQMEAgIFAKIDAgEw"
        "owMCAQEwezEUMBIGA1UECwwLRW5naW5lZXJpbmcxCzAJBgNVBAYTAlVTMRQwEgYDVQQHDAtTYW50YSBDbGFyYTELMAkGA1UECAwCQ0ExHzAd"
        "BgNVBAoMFkFkdmFuY2VkIE1pY3JvIERldmljZXMxEjAQBgNVBAMMCUFSSy1NaWxhbjAeFw0yMDEwMjIxNzIzMDVaFw00NTEwMjIxNzIzMDVa"
        "MHsxFDASBgNVBAsMC0VuZ2luZWVyaW5nMQswCQYDVQQGEwJVUzEUMBIGA1UEBwwLU2FudGEgQ2xhcmExCzAJBgNVBAgMAkNBMR8wHQYDVQQK"
        "DBZBZHZhbmNlZCBNaWNybyBEZXZpY2VzMRIwEAYDVQQDDAlBUkstTWlsYW4wggIiMA0GCSqGSIb3DQEBAQUAA4ICDwAwggIKAoICAQDQt3nZ"
        "Ek516ImWorYl2xWYPsWS26i1bBfV82BbjVdj1fPUcSFJSaEvP0K70MdGW+AlI3Ft5hiycl+/KPHUx9TRXm2QqJTUR6w0W1rWRMDSzM2Kx1hz"
        "2KyqTuZdPn4p8ZFt9zhX/3NEhwTyOUc3rVLWO7xf3f7p3ENSsbZLPGongGGrJiZQOu49clJfi9RzTU/uP3wymo5L3ms5F0Yd4jnY1rPmbYH4"
        "76+OwLTrR3fuNj0sV644/gx6uLyqB+LZLmQqqD9oXpo+24BlBVHu7coVhc/n1eYmC1yiDTmCYjRP86K0uG7NW+llwumHSh2H/Ug9erHf4yeM"
        "P3sDt9emoZ3/LwrFfuOSxMTMA6BsoB5qbeWb7fIohxNgyWxExc9yM1si+awHKQP//FKeK6y4cGSCeUQ0RbHVRxtBCuz6BUOS5U+GyfMhE2Bi"
        "8zjxj7ssaIlieuYTzFyt7F6QHGu9rZX1MlCqc3dDneS3m+JCLf6AJ+aTALQXS2KshlsuRc+s/DNnQz143GEjJJvaekl+CerPnkjS7ffCHivR"
        "k1B5MZ/DTcwFS3K7MZ6waRzD6WioxqrWpHi2MZs9jEK+kKrv46CkIKgw2K3a4uj0zXx8fPXSU4xPydYBS9FkXO15cKb7s8d1g+WZDBTDcu96"
        "cn8gtehA8d9uQfQLI9+GXWNaEkVlqwIDAQABo34wfDAOBgNVHQ8BAf8EBAMCAQYwHQYDVR0OBBYEFIWsGtFD98isVdTFHUFIq9V4StRTMA8G"
        "A1UdEwEB/wQFMAMBAf8wOgYDVR0fBDMwMTAvoC2gK4YpaHR0cHM6Ly9rZHNpbnRmLmFtZC5jb20vdmNlay92MS9NaWxhbi9jcmw="
    ),
    # ARK-Genoa, of which the SHA-256 is 4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1
    # google/go-sev-guest@af1c107a648f:verify/trust/ask_ark_genoa.pem
    (
        "MIIEEqADAgECAgMCAAAwRgYJKoZIhvcNAQEKMDmgDzANBglghkgBZQMEAgIFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQMEAgIFAKIDAgEw"
        "owMCAQEwezEUMBIGA1UECwwLRW5naW5lZXJpbmcxCzAJBgNVBAYTAlVTMRQwEgYDVQQHDAtTYW50YSBDbGFyYTELMAkGA1UECAwCQ0ExHzAd"
        "BgNVBAoMFkFkdmFuY2VkIE1pY3JvIERldmljZXMxEjAQBgNVBAMMCUFSSy1HZW5vYTAeFw0yMjAxMjYxNTM0MzdaFw00NzAxMjYxNTM0Mzda"
        "MHsxFDASBgNVBAsMC0VuZ2luZWVyaW5nMQswCQYDVQQGEwJVUzEUMBIGA1UEBwwLU2FudGEgQ2xhcmExCzAJBgNVBAgMAkNBMR8wHQYDVQQK"
        "DBZBZHZhbmNlZCBNaWNybyBEZXZpY2VzMRIwEAYDVQQDDAlBUkstR2Vub2EwggIiMA0GCSqGSIb3DQEBAQUAA4ICDwAwggIKAoICAQDcJ33l"
        "L+4U65EiyRb2/P1UMEXr00NAXv2hGEv8vY9VAaErdh18QGCkX8mLBYUGxP99cOHMDTWncuRxP/st2NxF8peMeX7RCr8zh1mSHpAOhR4rM0Es"
        "NwEoMMZaje/fk3KvFsDUOeRjBQpTkACTg/3i0pcunzSjG3zhqHIeguZz8uqwayn6irUHPg8+xgvBMbiIwpVppP3T+hngjyiJtKu73a8mGWpY"
        "7bt39HFzeJQzKE14ZOg6+DH+JSjiAakbrU0OmQRS8jO4pxozHwh1OlaDYMXpLAXQiBUx9+e+0mYDrwHAk1ajUTg8sl1o98GJ9wmm4EXA1VAg"
        "9ARVfdo/z0clKnxhtj2XJJLo+VUSpMEG1pCaLgBMaYxH6fYr974kCFTYaPuMikmE6R0f1+KtAOeaUDZIV8n8JzSYY3Nb1GYiHI5Sc0WhyWaR"
        "GGXf8BBTliz1CxqfWNP8SLJP6kKmacD7L152+EMJs4bwXajEcZF1MGTKW6eCuRckZiLAatHyRqKq/s03xCE4EypiNxuuQSvR/xAwqSUhLmu4"
        "5+qUswIHDwksHcuSOlaC0Ps6nGTNKyiE3jtSibzpFjqWnvaDx5cc/Wpiue+HNobVLvS/Do6RtpoL0SOIf+4eAAlAbGifu7RDvGChERYD97sl"
        "wFDAuDzQer+xtG6p6zHPvAFZJjbnhwIDAQABo34wfDAOBgNVHQ8BAf8EBAMCAQYwHQYDVR0OBBYEFJ9d+f4N2PNa0DMaJe+BKU++MahbMA8G"
        "A1UdEwEB/wQFMAMBAf8wOgYDVR0fBDMwMTAvoC2gK4YpaHR0cHM6Ly9rZHNpbnRmLmFtZC5jb20vdmNlay92MS9HZW5vYS9jcmw="
    ),
    # ARK-Turin, of which the SHA-256 is 1f084161a44bb6d93778a904877d4819cafa5d05ef4193b2ded9dd9c73dd3f6a
    # google/go-sev-guest@af1c107a648f:verify/trust/ask_ark_turin_vcek.pem
    (
        "MIIEEqADAgECAgMDAAAwRgYJKoZIhvcNAQEKMDmgDzANBglghkgBZQMEAgIFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQMEAgIFAKIDAgEw"
        "owMCAQEwezEUMBIGA1UECwwLRW5naW5lZXJpbmcxCzAJBgNVBAYTAlVTMRQwEgYDVQQHDAtTYW50YSBDbGFyYTELMAkGA1UECAwCQ0ExHzAd"
        "BgNVBAoMFkFkdmFuY2VkIE1pY3JvIERldmljZXMxEjAQBgNVBAMMCUFSSy1UdXJpbjAeFw0yMzA1MTUyMDAzMTJaFw00ODA1MTUyMDAzMTJa"
        "MHsxFDASBgNVBAsMC0VuZ2luZWVyaW5nMQswCQYDVQQGEwJVUzEUMBIGA1UEBwwLU2FudGEgQ2xhcmExCzAJBgNVBAgMAkNBMR8wHQYDVQQK"
        "DBZBZHZhbmNlZCBNaWNybyBEZXZpY2VzMRIwEAYDVQQDDAlBUkstVHVyaW4wggIiMA0GCSqGSIb3DQEBAQUAA4ICDwAwggIKAoICAQDBoCuI"
        "HsQi5VzhkHXAPdh8PEv717JLv6LObQmPdbvvY0g0JaXwGPfD8kPZmOZtHFZ0ir/h32JqsIqiteWglQHWNF2DGpxxPHVo6iKDj7bDVeFVUlPs"
        "rjnvBPlks0mBBrGpr0S2TCN3r72w6GUIMT2XjeRDRHYGKRUlr+7LJU5LASTnDm1co64b2O+rpC0AwlqxbfzCWpENooQa1n1VSAaifbtm4vix"
        "Mm4L9rPP3+JAHDyQSKXM6X3kCJOR5jmNIQENZsCqdmTmqUzuQhIobbSSBCbXiaE0oMjanai5r7O4AbuLnZ6mhEXYZ9TRNiT/J/68I0Ha2d5y"
        "EVC4/Z7xsuT3ll2o+L39RbDgleO10QDi7YlimVJJQ9BUBcq3otWq6O0lwzn0kqva7RdDvkrDFwynXmBJeEF8ie88DC4Bjh0TDAapPygiDh6w"
        "8fASyYKGFh4MjE8b1Hh/H07SrqnwZv4deVOJLjs/1g146mJ05QrMOX9LU6/KEO1IvwslzbhABMXJ2j+IP8pR28VNGUPRyuQAyRkuhZDyEsMZ"
        "zoFklex13tl/Z7hRbe0j/WiH/a3bc63fPKFNy/mANsAG7QuNV73y5GdLXlIzAr/+Um317kGoq+AAGRKgAF/4HhUW09URfTKCthoVoj2LkAGv"
        "GdUGbNelFvbWIjU2U0J84ZQ8iFWlYQIDAQABo34wfDAOBgNVHQ8BAf8EBAMCAQYwHQYDVR0OBBYEFGSgX3HjDApk2Dt15QFZnivuBgNEMA8G"
        "A1UdEwEB/wQFMAMBAf8wOgYDVR0fBDMwMTAvoC2gK4YpaHR0cHM6Ly9rZHNpbnRmLmFtZC5jb20vdmNlay92MS9UdXJpbi9jcmw="
    ),
)
# https://certificates.trustedservices.intel.com/Intel_SGX_Provisioning_Certification_RootCA.cer
INTEL = (
    # Intel SGX Root CA, of which the SHA-256 is 44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3
    # google/go-tdx-guest@91f9a52f36c7:verify/trusted_root.pem
    (
        "MIICNKADAgECAhQiZQzWWp00ifODtJVSv1AbOScGrDAKBggqhkjOPQQDAjBoMRowGAYDVQQDDBFJbnRlbCBTR1ggUm9vdCBDQTEaMBgGA1UE"
        "CgwRSW50ZWwgQ29ycG9yYXRpb24xFDASBgNVBAcMC1NhbnRhIENsYXJhMQswCQYDVQQIDAJDQTELMAkGA1UEBhMCVVMwHhcNMTgwNTIxMTA0"
        "NTEwWhcNNDkxMjMxMjM1OTU5WjBoMRowGAYDVQQDDBFJbnRlbCBTR1ggUm9vdCBDQTEaMBgGA1UECgwRSW50ZWwgQ29ycG9yYXRpb24xFDAS"
        "BgNVBAcMC1NhbnRhIENsYXJhMQswCQYDVQQIDAJDQTELMAkGA1UEBhMCVVMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQLqcTAwMhhk6P+"
        "I9awLNoQqLvU6I5ItEWFYaNucFUl9WeRji7ciOQNhgvQzE7iaqzJiOUFqVNVjEU/awkErnOUo4G7MIG4MB8GA1UdIwQYMBaAFCJlDNZanTSJ"
        "84O0lVK/UBs5JwasMFIGA1UdHwRLMEkwR6BFoEOGQWh0dHBzOi8vY2VydGlmaWNhdGVzLnRydXN0ZWRzZXJ2aWNlcy5pbnRlbC5jb20vSW50"
        "ZWxTR1hSb290Q0EuZGVyMB0GA1UdDgQWBBQiZQzWWp00ifODtJVSv1AbOScGrDAOBgNVHQ8BAf8EBAMCAQYwEgYDVR0TAQH/BAgwBgEB/wIB"
        "AQ=="
    ),
)

RSASSA_PSS_SHA384 = bytes.fromhex(
    "304606092a864886f70d01010a3039a00f300d06096086480165030402020500"
    "a11c301a06092a864886f70d010108300d06096086480165030402020500a203020130a303020101"
)
ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
NO_SIGNATURE = bytes.fromhex("030100")


@cache
def amd_roots() -> Sequence[Certificate]:
    """ARK-Milan, ARK-Genoa, ARK-Turin."""
    return tuple(_anchor(tbs, RSASSA_PSS_SHA384) for tbs in AMD)


@cache
def intel_roots() -> Sequence[Certificate]:
    return tuple(_anchor(tbs, ECDSA_SHA256) for tbs in INTEL)


def _anchor(base64: str, algorithm: bytes) -> Certificate:
    """A certificate without its signature."""
    content = from_base64(base64) + algorithm + NO_SIGNATURE
    return parse_certificate(b"\x30\x82" + len(content).to_bytes(2, "big") + content)
