#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keys of a role that a token service gives in exchange for the token of a web identity,
as in pods of Kubernetes: from the environment or a profile, renewed in time, and what
is said if there are none."""

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import genuine  # noqa: E402
from demands import check, write  # noqa: E402
from near_s3 import Server, environment  # noqa: E402
from rsh_cli import INPUT, IO, PLAIN, end_if_built_without  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, Tap, require_mount, reshardfs_program  # noqa: E402

QWEN3 = os.path.join(genuine.WEIGHTS, "models", "qwen3")
MODEL = {f"m/{n}": open(os.path.join(QWEN3, n), "rb").read() for n in os.listdir(QWEN3)}
SHOWN = "model-00001-of-00001.safetensors"
ROLE = "arn:aws:iam::123456789012:role/reads a+b"
# Characters of a form have another meaning.
TOKEN = "eyJ.a+b/c=&d%20 e"


def sts_error(code):
    return (f'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>'
            f"Sender</Type><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>")


class Service:
    """Both services.  It gives numbered keys for the token, and accepts the last ones."""

    def __init__(self, lasts=3600, refusal=None):
        self.token, self.lasts, self.refusal = TOKEN, lasts, refusal
        self.given, self.accepted = [], 1
        self.used, self.refused, self.forms = set(), 0, []

    def sts(self, h):
        form = dict(urllib.parse.parse_qsl(
            h.rfile.read(int(h.headers["Content-Length"])).decode(), strict_parsing=True))
        self.forms.append(form)
        if self.refusal:
            status, body = self.refusal
            return h.answer(status, body.encode())
        if form["WebIdentityToken"] != self.token:
            return h.answer(400, sts_error("InvalidIdentityToken").encode())
        self.given.append(f"KEY{len(self.given)}")
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.lasts))
        return h.answer(200, f"""<?xml version="1.0"?>
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>x</SubjectFromWebIdentityToken>
    <Credentials><SessionToken>st</SessionToken><SecretAccessKey>sk</SecretAccessKey>
      <Expiration>{until}</Expiration><AccessKeyId>{self.given[-1]}</AccessKeyId></Credentials>
  </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>""".encode())

    def __call__(self, h, _path, _query):
        if h.command == "POST":
            self.sts(h)
            return True
        key = re.search(r"Credential=([^/]+)/", h.headers.get("Authorization", ""))
        self.used.add(key and key[1])
        if not key or key[1] not in self.given[-self.accepted:] or \
                h.headers.get("x-amz-security-token") != "st":
            self.refused += 1
            return h.refuse(400, "ExpiredToken")
        return None


def settings(d, server, **more):
    write(f"{d}/token", TOKEN.encode() + b"\n")
    values = dict(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_ROLE_ARN=ROLE,
                  AWS_WEB_IDENTITY_TOKEN_FILE="token")
    values.update(more)
    return environment(PLAIN, server.url, d, **values)


def run(env, d, *words):
    return subprocess.run([reshardfs_program(), *words], env=env, cwd=d, capture_output=True,
                          text=True, check=False, timeout=60 * TIMEOUT_SCALE)


def shows(env, d, between=lambda: None):
    """Reads a file in two halves."""
    mnt = os.path.join(d, "mnt")
    os.mkdir(mnt)
    got = run(env, d, "mount", "--cache", "off", "--index-cache", "off", "--source-timeout", "5",
              "s3://b/m", mnt)
    check(got.returncode == 0, got.stderr)
    try:
        fd = os.open(os.path.join(mnt, SHOWN), os.O_RDONLY)
        size = os.fstat(fd).st_size
        data = os.pread(fd, size // 2, 0)
        between()
        data += os.pread(fd, size - size // 2, size // 2)
        os.close(fd)
        return data
    finally:
        run(env, d, "umount", "--force", mnt)


def in_directory(tap, name, work):
    with tempfile.TemporaryDirectory(prefix="reshardfs-role-") as d, tap.test(name):
        work(d)


def of_environment(d, wanted):
    service = Service()
    with Server(MODEL, service) as server:
        env = settings(d, server, AWS_ROLE_SESSION_NAME="pod=1")
        check(shows(env, d) == wanted, "other bytes")
    check(all(form == {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15",
                       "RoleArn": ROLE, "RoleSessionName": "pod=1", "WebIdentityToken": TOKEN}
              for form in service.forms), service.forms)


def of_profile(d, wanted):
    service = Service()
    with Server(MODEL, service) as server:
        write(f"{d}/.aws/config", (f"[profile pod]\nrole_arn = {ROLE}\n"
                                   f"web_identity_token_file = {d}/token\n").encode())
        env = settings(d, server, AWS_ROLE_ARN=None, AWS_WEB_IDENTITY_TOKEN_FILE=None,
                       AWS_PROFILE="pod")
        check(shows(env, d) == wanted, "other bytes")
    check(service.forms[0]["RoleSessionName"] == "reshardfs", service.forms)


def before_keys_of_a_profile(d, wanted):
    with Server(MODEL, Service()) as server:
        write(f"{d}/.aws/credentials", b"[default]\naws_access_key_id = OTHER\n"
                                       b"aws_secret_access_key = x\n")
        check(shows(settings(d, server), d) == wanted, "other bytes")


def token_is_renamed(d, wanted):
    """The token and the keys expire together."""
    service = Service()

    def renew():
        service.token, service.given = "second", []
        write(f"{d}/token.new", b"second")
        os.rename(f"{d}/token.new", f"{d}/token")
    with Server(MODEL, service) as server:
        check(shows(settings(d, server), d, renew) == wanted, "other bytes")
    check([f["WebIdentityToken"] for f in service.forms][-2:] == [TOKEN, "second"],
          service.forms)


def keys_are_renewed_in_time(d, wanted):
    """Keys that would expire within minutes are not used for another request."""
    service = Service(lasts=200)
    service.accepted = 100
    with Server(MODEL, service) as server:
        check(shows(settings(d, server), d) == wanted, "other bytes")
    check(service.refused == 0 and len(service.used) > 2, (service.refused, service.used))


REFUSED = f"role {ROLE}: the token service URL: the server "
PAGE = "<!DOCTYPE html><html><body>please log in</body></html>"
# (refusal, environment, exit status, words)
CASES = {
    "denied": ((403, sts_error("AccessDenied")), {}, IO,
               [REFUSED + "denies access (HTTP 403 AccessDenied)"]),
    "expired": ((400, sts_error("ExpiredTokenException")), {}, IO,
                [REFUSED + "reports that the token has expired (HTTP 400 ExpiredTokenException)"]),
    "not known": ((400, sts_error("InvalidIdentityToken")), {}, IO,
                  [REFUSED + "rejects the token: is its issuer an identity provider"]),
    "claim": ((403, sts_error("IDPRejectedClaim")), {}, IO,
              [REFUSED + "rejects the token: its issuer does not accept it"]),
    "name": ((400, sts_error("ValidationError")), {}, IO,
             ["does not accept the name of the role or of the session"]),
    "page": ((200, PAGE), {}, INPUT,
             ["the token service returned no credentials",
              "; AWS_ENDPOINT_URL_STS sets the service"]),
    "nothing": ((200, ""), {}, INPUT, ["the token service returned no credentials"]),
    "no file": (None, {"AWS_WEB_IDENTITY_TOKEN_FILE": "nowhere"}, INPUT,
                ["cannot read the token of the web identity, ", "/nowhere: No such file"]),
    "no role": (None, {"AWS_ROLE_ARN": None}, INPUT,
                ["AWS_WEB_IDENTITY_TOKEN_FILE needs the name of a role: set AWS_ROLE_ARN"]),
    "no address": (None, {"AWS_ENDPOINT_URL_STS": "s3://b"}, INPUT,
                   ["s3://b: not an address of a token service (AWS_ENDPOINT_URL_STS)"]),
}


def says(d, refusal, more, status, words):
    with Server(MODEL, Service(refusal=refusal)) as server:
        for command in ["ls", "s3://b/m"], ["mount", "s3://b/m", "mnt"]:
            os.makedirs(f"{d}/mnt", exist_ok=True)
            got = run(settings(d, server, **more), d, command[0], "--source-timeout", "3",
                      *command[1:])
            check(got.returncode == status, got)
            for word in words:
                check(word.replace("URL", server.url) if "URL:" in word else word in got.stderr,
                      f"no {word!r}: {got.stderr}")
            check(TOKEN not in got.stderr, got.stderr)


# The server of a region, as a proxy is asked for it.
ENDPOINTS = [({"AWS_REGION": "eu-west-1"}, "sts.eu-west-1.amazonaws.com:443"),
             ({"AWS_REGION": "eu-west-1", "AWS_STS_REGIONAL_ENDPOINTS": "legacy"},
              "sts.amazonaws.com:443"),
             ({"AWS_REGION": "me-south-1", "AWS_STS_REGIONAL_ENDPOINTS": "legacy"},
              "sts.me-south-1.amazonaws.com:443"),
             ({"AWS_REGION": "cn-north-1"}, "sts.cn-north-1.amazonaws.com.cn:443"),
             ({"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL_STS": "sts.own.test"},
              "sts.own.test:443")]


def endpoint(d, more, wanted):
    asked = []

    def connect(h):
        asked.append(h.path)
        h.refuse(403)

    with Server() as server:
        server.RequestHandlerClass = type("Proxy", (server.RequestHandlerClass,),
                                          {"do_CONNECT": connect})
        env = settings(d, server, AWS_ENDPOINT_URL=None, https_proxy=server.url, **more)
        got = run(env, d, "ls", "--source-timeout", "3", "s3://b/m")
    check(asked and set(asked) == {wanted}, (asked, got.stderr))
    check(got.returncode == IO and server.url in got.stderr, got)


def main():
    require_mount()
    end_if_built_without("object storage", "ls", "s3://bucket/none")
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-role-") as d, Server(MODEL) as server:
        wanted = shows(environment(PLAIN, server.url, d), d)
    for case in (of_environment, of_profile, before_keys_of_a_profile, token_is_renamed,
                 keys_are_renewed_in_time):
        in_directory(tap, case.__name__.replace("_", " "), lambda d, c=case: c(d, wanted))
    for name, case in CASES.items():
        in_directory(tap, f"refused: {name}", lambda d, c=case: says(d, *c))
    for more, asked in ENDPOINTS:
        in_directory(tap, f"service: {asked}", lambda d, m=more, a=asked: endpoint(d, m, a))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
