/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints, /sys/kernel/tracing/events/pollux_blk: what a queue does, one by one; stats.c counts the same.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pollux_blk

#if !defined(POLLUX_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define POLLUX_TRACE_H

#include <linux/tracepoint.h>

#include "pollux_blk.h"

DECLARE_EVENT_CLASS(pollux_blk_queue,
	TP_PROTO(const struct pollux_queue *queue, unsigned int value),
	TP_ARGS(queue, value),
	TP_STRUCT__entry(
		__field(int, disk)
		__field(unsigned int, queue)
		__field(unsigned int, value)
	),
	TP_fast_assign(
		__entry->disk = queue->disk->index;
		__entry->queue = queue - queue->disk->queues;
		__entry->value = value;
	),
	TP_printk("disk=%d queue=%u value=%u", __entry->disk, __entry->queue, __entry->value)
);

/* A request was put on the ring; value: whether it is polled. */
DEFINE_EVENT(pollux_blk_queue, pollux_blk_submit,
	TP_PROTO(const struct pollux_queue *queue, unsigned int value), TP_ARGS(queue, value));
/* The device is kicked; value: whether the lock is held. */
DEFINE_EVENT(pollux_blk_queue, pollux_blk_kick,
	TP_PROTO(const struct pollux_queue *queue, unsigned int value), TP_ARGS(queue, value));
/* An interrupt has ended; value: how many requests it found. */
DEFINE_EVENT(pollux_blk_queue, pollux_blk_interrupt,
	TP_PROTO(const struct pollux_queue *queue, unsigned int value), TP_ARGS(queue, value));
/* A poll has looked under the lock; value: how many requests it found. Polls that see nothing are not traced. */
DEFINE_EVENT(pollux_blk_queue, pollux_blk_poll,
	TP_PROTO(const struct pollux_queue *queue, unsigned int value), TP_ARGS(queue, value));
/* A request was parked for its poller; value: how many are. */
DEFINE_EVENT(pollux_blk_queue, pollux_blk_parked,
	TP_PROTO(const struct pollux_queue *queue, unsigned int value), TP_ARGS(queue, value));
/* Callbacks were turned on or off; value: which. */
DEFINE_EVENT(pollux_blk_queue, pollux_blk_callbacks,
	TP_PROTO(const struct pollux_queue *queue, unsigned int value), TP_ARGS(queue, value));

/* The lock is let go; only while time_locks=1. */
TRACE_EVENT(pollux_blk_lock,
	TP_PROTO(const struct pollux_queue *queue, u64 waited, u64 held),
	TP_ARGS(queue, waited, held),
	TP_STRUCT__entry(
		__field(int, disk)
		__field(unsigned int, queue)
		__field(u64, waited)
		__field(u64, held)
	),
	TP_fast_assign(
		__entry->disk = queue->disk->index;
		__entry->queue = queue - queue->disk->queues;
		__entry->waited = waited;
		__entry->held = held;
	),
	TP_printk("disk=%d queue=%u waited_ns=%llu held_ns=%llu", __entry->disk, __entry->queue,
		  __entry->waited, __entry->held)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
