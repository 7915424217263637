# What the sidecar requires of nvattest's claims beyond NVIDIA's own verdict. Input: a list with each device's claims (versions 3.0 and 4.0).
package policy

import future.keywords.every

default nv_match := false

nv_match {
    count(input) > 0
    every claims in input {
        device_passes(claims)
    }
}

device_passes(claims) {
    claims["x-nvidia-device-type"] == "gpu"
    claims.measres == "success"
    claims.secboot == true
    claims.dbgstat == "disabled"
    claims["x-nvidia-gpu-attestation-report-parsed"] == true
    claims["x-nvidia-gpu-attestation-report-nonce-match"] == true
    claims["x-nvidia-gpu-attestation-report-signature-verified"] == true
    claims["x-nvidia-gpu-attestation-report-cert-chain-fwid-match"] == true
    claims["x-nvidia-gpu-driver-rim-version-match"] == true
    claims["x-nvidia-gpu-driver-rim-signature-verified"] == true
    claims["x-nvidia-gpu-vbios-rim-version-match"] == true
    claims["x-nvidia-gpu-vbios-rim-signature-verified"] == true
    claims["x-nvidia-gpu-vbios-index-no-conflict"] == true
    chain_is_good(claims["x-nvidia-gpu-attestation-report-cert-chain"])
    chain_is_good(claims["x-nvidia-gpu-driver-rim-cert-chain"])
    chain_is_good(claims["x-nvidia-gpu-vbios-rim-cert-chain"])
}

chain_is_good(chain) {
    chain["x-nvidia-cert-status"] == "valid"
    chain["x-nvidia-cert-ocsp-status"] == "good"
}
