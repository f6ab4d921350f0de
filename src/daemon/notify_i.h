/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/notify_i.h - tells a service manager how far the mount is, as
 * sd_notify(3) does. */
#ifndef RSH_DAEMON_NOTIFY_I_H
#define RSH_DAEMON_NOTIFY_I_H

/* Sends one message, such as "READY=1", to the socket that NOTIFY_SOCKET names;
 * does nothing where there is none.  Any thread; what goes wrong is logged. */
void rsh_notify(const char *message);

#endif
