# SPDX-License-Identifier: Apache-2.0
"""What servers of the tests have in common: threads, and TLS if they are told to."""

import socket
import ssl


class TlsServer:
    """Stands before a class of socketserver's among the bases of a server."""

    daemon_threads = True
    context = None

    def speak_tls(self, certificate):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)

    def get_request(self):
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context:
            connection = self.context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request, client_address):
        pass
