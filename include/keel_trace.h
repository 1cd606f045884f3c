/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events: creation and release of every object, every destroy that was
 * refused because the object is in use, every allocation that the quotas
 * refused, of the device or of the user, and the connections to other hosts.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM keel

#if !defined(KEEL_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KEEL_TRACE_H

#include <linux/tracepoint.h>

#include "keel_obj.h"

DECLARE_EVENT_CLASS(keel_obj_class,
	TP_PROTO(const struct keel_obj *obj),
	TP_ARGS(obj),
	TP_STRUCT__entry(
		__string(dev, obj->reg->name)
		__string(kind, keel_kind_name(obj->kind))
		__string(comm, obj->comm)
		__field(u32, id)
		__field(pid_t, pid)
	),
	TP_fast_assign(
		keel_assign_str(dev, obj->reg->name);
		keel_assign_str(kind, keel_kind_name(obj->kind));
		keel_assign_str(comm, obj->comm);
		__entry->id = obj->id;
		__entry->pid = pid_nr(obj->pid);
	),
	TP_printk("%s: %s %u of pid %d (%s)", __get_str(dev), __get_str(kind),
		  __entry->id, __entry->pid, __get_str(comm))
);

DEFINE_EVENT(keel_obj_class, keel_obj_birth,
	TP_PROTO(const struct keel_obj *obj),
	TP_ARGS(obj)
);

DEFINE_EVENT(keel_obj_class, keel_obj_death,
	TP_PROTO(const struct keel_obj *obj),
	TP_ARGS(obj)
);

TRACE_EVENT(keel_destroy_refused,
	TP_PROTO(const struct keel_obj *obj, u32 holders,
		 const struct keel_uapi_holder *first),
	TP_ARGS(obj, holders, first),
	TP_STRUCT__entry(
		__string(dev, obj->reg->name)
		__string(kind, keel_kind_name(obj->kind))
		__string(holder, holders ? keel_kind_name(first->kind) : "-")
		__string(comm, first->comm)
		__field(u32, id)
		__field(u32, holders)
		__field(u32, holder_id)
		__field(u32, holder_pid)
	),
	TP_fast_assign(
		keel_assign_str(dev, obj->reg->name);
		keel_assign_str(kind, keel_kind_name(obj->kind));
		keel_assign_str(holder, holders ? keel_kind_name(first->kind)
					: "-");
		keel_assign_str(comm, first->comm);
		__entry->id = obj->id;
		__entry->holders = holders;
		__entry->holder_id = first->id;
		__entry->holder_pid = first->pid;
	),
	TP_printk("%s: %s %u is held by %u, first by %s %u of pid %u (%s)",
		  __get_str(dev), __get_str(kind), __entry->id,
		  __entry->holders, __get_str(holder), __entry->holder_id,
		  __entry->holder_pid, __get_str(comm))
);

TRACE_EVENT(keel_quota_refused,
	TP_PROTO(const struct keel_user *user, unsigned int what, u64 n),
	TP_ARGS(user, what, n),
	TP_STRUCT__entry(
		__string(dev, user->quotas->name)
		__string(what, keel_resource_name(what))
		__field(u64, n)
		__field(u64, held)
		__field(u64, count)
		__field(u64, limit)
		__field(u32, ns)
		__field(u32, uid)
	),
	TP_fast_assign(
		keel_assign_str(dev, user->quotas->name);
		keel_assign_str(what, keel_resource_name(what));
		__entry->n = n;
		__entry->held = atomic64_read(&user->held[what]);
		__entry->count = atomic64_read(&user->quotas->count[what]);
		__entry->limit = user->quotas->limit[what];
		__entry->ns = user->id >> 32;
		__entry->uid = user->id;
	),
	TP_printk("%s: %llu %s to %s %u, which holds %llu; %llu of %llu are taken",
		  __get_str(dev), __entry->n, __get_str(what),
		  __entry->ns ? "user namespace" : "user",
		  __entry->ns ? __entry->ns : __entry->uid, __entry->held,
		  __entry->count, __entry->limit)
);

TRACE_EVENT(keel_link,
	TP_PROTO(const char *dev, const union ib_gid *sgid,
		 const union ib_gid *dgid, const char *what),
	TP_ARGS(dev, sgid, dgid, what),
	TP_STRUCT__entry(
		__string(dev, dev)
		__string(what, what)
		__array(u8, sgid, sizeof(union ib_gid))
		__array(u8, dgid, sizeof(union ib_gid))
	),
	TP_fast_assign(
		keel_assign_str(dev, dev);
		keel_assign_str(what, what);
		memcpy(__entry->sgid, sgid, sizeof(*sgid));
		memcpy(__entry->dgid, dgid, sizeof(*dgid));
	),
	TP_printk("%s: %pI6c to %pI6c: %s", __get_str(dev), __entry->sgid,
		  __entry->dgid, __get_str(what))
);

#endif /* KEEL_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE keel_trace
#include <trace/define_trace.h>
