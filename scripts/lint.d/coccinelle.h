/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For Coccinelle only: macros that it does not understand. A function that contains
 * such a macro is not searched.
 */
#define scoped_guard(kind, ...) if (1)
#define guard(kind) (void)
#define UVERBS_HANDLER(id) id
#define INIT_RDMA_OBJ_SIZE(...) .size = 0
#define KEEL_RESIZE_CQ(name) .resize_cq = name,
#define KEEL_FILL_RES_SRQ(name)
#define KEEL_REPORT_PORT_EVENT(name)
#define KEEL_ROBUST_UDATA
