"""An authority and the certificates that it gives to nodes, on disk."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ottla.node.internal.tls import Tls, name_of

DAY = datetime.timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """Signs certificates, and writes what it makes into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(
            self._name, self._key, [x509.BasicConstraints(ca=True, path_length=None)]
        )
        self.trusted = folder / f"{name}.pem"
        self.trusted.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def keys(self, *names: str, age_days: int = 0, pass_phrase: bytes = b"") -> Path:
        """Return a file with a new key and a certificate for these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        certificate = self._certificate(
            _name("node"), key, [alternatives] if names else [], age_days
        )
        path = self._folder / f"keys-{certificate.serial_number}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(pass_phrase)
                if pass_phrase
                else serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def tls(self, node_id: int) -> Tls:
        return Tls.from_files(self.keys(name_of(node_id)), self.trusted)

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extensions: list[x509.ExtensionType],
        age_days: int = 0,
    ) -> x509.Certificate:
        end = datetime.datetime.now(datetime.UTC) + DAY - age_days * DAY
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 3 * DAY)
            .not_valid_after(end)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())
