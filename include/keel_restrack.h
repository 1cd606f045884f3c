/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Properties of objects that "rdma resource" shows.
 */
#ifndef KEEL_RESTRACK_H
#define KEEL_RESTRACK_H

#include <linux/rcupdate.h>

#include "keel_obj.h"

struct sk_buff;

/*
 * The object of an ib_core structure, with a reference; NULL after destroy. Older
 * kernels list the structure until after the destroy.
 */
#define keel_res_tryget(_member)					\
({									\
	typeof(_member) _found;						\
									\
	rcu_read_lock();						\
	_found = READ_ONCE(_member);					\
	if (_found && !keel_obj_tryget(&_found->obj))			\
		_found = NULL;						\
	rcu_read_unlock();						\
	_found;								\
})

int keel_res_fill(struct sk_buff *msg, struct keel_obj *obj,
		  int (*fill)(struct sk_buff *msg, struct keel_obj *obj));

#endif /* KEEL_RESTRACK_H */
