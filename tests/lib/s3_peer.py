#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""moto, a server of S3 that verifies signatures, on the loopback, with a bucket
for unit/test_objects_peer:

    s3_peer.py [DIRECTORY]

It prints "PORT KEY SECRET" and ends when its stdin does.  The bucket "bucket" has
1,203 objects below "dir/", and some with odd names below "odd names+/"; contents are
those of lib/object_server.py.  The files of DIRECTORY are below "tree+/"."""
import logging
import os
import pathlib
import sys

import boto3
from moto import settings
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

import object_server

ODD = ["plain", "blank and + plus", "percent%2F", "q?x=1&y#z", "ä~!'()*",
       "a=b,c;d:e@f$g", "deep/er/one"]


def fill(directories):
    """Past HTTP, which takes its time."""
    storage = s3_backends["123456789012"]["aws"]
    storage.create_bucket("bucket", "us-east-1")
    for i in range(1203):
        name = f"file_{i:04}"
        storage.put_object("bucket", f"dir/{name}",
                           object_server.content(name, 0, 0, i))
    for name in ODD:
        word = name.rpartition("/")[2].partition("~")[0]
        storage.put_object("bucket", f"odd names+/{name}",
                           object_server.content(word, 0, 0, 5000))
    for directory in directories:
        for path in pathlib.Path(directory).rglob("*"):
            if path.is_file():
                storage.put_object("bucket", f"tree+/{path.relative_to(directory)}",
                                   path.read_bytes())


def user(iam):
    iam.create_user(UserName="reader")
    iam.put_user_policy(
        UserName="reader", PolicyName="read", PolicyDocument=
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",'
        ' "Action": "s3:*", "Resource": "*"}]}')
    return iam.create_access_key(UserName="reader")["AccessKey"]


def main():
    out = os.dup(1)
    os.dup2(2, 1)  # the server's own words are no answer
    logging.getLogger("werkzeug").disabled = True
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    url = f"http://127.0.0.1:{port}"
    to = dict(endpoint_url=url, region_name="us-east-1",
              aws_access_key_id="any", aws_secret_access_key="any")
    fill(sys.argv[1:2])
    key = user(boto3.client("iam", **to))
    # From here on it verifies.
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    os.write(out, f"{port} {key['AccessKeyId']} {key['SecretAccessKey']}\n"
             .encode())
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
