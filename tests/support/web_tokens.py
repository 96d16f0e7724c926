"""JSON Web Tokens, and the keys that verify them."""

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

#: The issuer of the tokens.
ISSUER = "https://id.example.com"
KEY = ec.generate_private_key(ec.SECP256R1())


def jwks(**keys: Any) -> str:
    entries = []
    for key_id, key in keys.items():
        kind = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
        entries.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": key_id})
    return json.dumps({"keys": entries})


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    told = {
        "sub": "ann",
        "aud": "drover",
        "iss": ISSUER,
        "exp": now + 600,
        "iat": now,
        "groups": ["data"],
        **changed,
    }
    return {name: value for name, value in told.items() if value is not None}


def signed(key: Any = KEY, key_id: str | None = "one", alg: str = "ES256", **changed: Any) -> str:
    headers = {"kid": key_id} if key_id else {}
    return jwt.encode(claims(**changed), key, algorithm=alg, headers=headers)


def unsigned() -> str:
    return jwt.encode(claims(), "", algorithm="none", headers={"kid": "one"})
