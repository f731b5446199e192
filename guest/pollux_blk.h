/* SPDX-License-Identifier: GPL-2.0 */
/*
 * pollux_blk: a virtio-blk driver whose queues are polled and interrupt-driven at once.
 *
 * One set of queues serves both kinds of request; each request is what its bios say (REQ_POLLED).
 *
 *   main.c     the device: probe, remove, changes of its configuration
 *   gone.c     a device that goes, for good or for a sleep
 *   config.c   the device's configuration space, as limits of the disk
 *   submit.c   the hot path: requests to the device
 *   queue.c    the hot path: completions, by interrupt and by poll
 *   queues.c   how queues come and go
 *   request.c  a struct request as a virtio-blk request, and back
 *   sysfs.c    serial, cache_type
 *   stats.c    what is counted, in debugfs, and how long locks are held
 *   trace.h    the tracepoints
 */
#ifndef POLLUX_BLK_H
#define POLLUX_BLK_H

#include <linux/blk-mq.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <linux/workqueue.h>
#include <uapi/linux/virtio_blk.h>

#include "compat.h"

/* Segments that a request holds without a further allocation. */
#define POLLUX_INLINE_SEGMENTS 2

/**
 * struct pollux_request - what the driver keeps beside each struct request
 * @header: what the device reads first
 * @status: what the device writes last
 * @polled: every bio of it is polled for: no interrupt is needed to complete it
 * @in_task: a bio that ends with it is polled for, so it must not be completed in an interrupt: the caches of
 *	polled bios are not safe there (6.1)
 * @next: in a &struct pollux_chain
 * @table: the segments of its data
 * @segments: the first of them
 */
struct pollux_request {
	struct virtio_blk_outhdr header;
	u8 status;
	bool polled;
	bool in_task;
	struct pollux_request *next;
	struct sg_table table;
	struct scatterlist segments[POLLUX_INLINE_SEGMENTS];
};

/* A list of requests, first in, first out. */
struct pollux_chain {
	struct pollux_request *first;
	struct pollux_request **end;
};

static inline void chain_init(struct pollux_chain *chain)
{
	chain->first = NULL;
	chain->end = &chain->first;
}

static inline void chain_add(struct pollux_chain *chain, struct pollux_request *request)
{
	request->next = NULL;
	WRITE_ONCE(*chain->end, request);
	chain->end = &request->next;
}

static inline struct pollux_request *chain_pop(struct pollux_chain *chain)
{
	struct pollux_request *request = chain->first;

	if (request) {
		WRITE_ONCE(chain->first, request->next);
		if (!request->next)
			chain->end = &chain->first;
	}
	return request;
}

/* What is counted, per queue. */
enum pollux_event {
	POLLUX_SUBMITTED,	/* requests put on the ring */
	POLLUX_SUBMITTED_POLLED,	/* those of them that are polled */
	POLLUX_KICKS,		/* notifications of the device */
	POLLUX_INTERRUPTS,	/* its callbacks */
	POLLUX_IDLE_INTERRUPTS,	/* those that found nothing */
	POLLUX_POLLS_FOUND,	/* polls that completed something */
	POLLUX_POLLS_EMPTY,	/* polls that did not */
	POLLUX_PARKED,		/* requests reaped for their poller by somebody else */
	POLLUX_BY_WORKER,	/* requests the worker completed: nobody polled in time, or over budget */
	POLLUX_OVERDUE,		/* interrupt-driven ones of them that no interrupt had told of */
	POLLUX_OVER_BUDGET,	/* interrupts that left the rest to the worker */
	POLLUX_ARMED,		/* callbacks turned on */
	POLLUX_DISARMED,	/* callbacks turned off */
	POLLUX_EVENTS
};

struct pollux_counters {
	u64 count[POLLUX_EVENTS];
};

/* What the queue's lock has cost while that was measured, in ns: see stats.c. */
struct pollux_lock_times {
	u64 taken;
	u64 contended;
	u64 waited;
	u64 held;
	u64 longest_wait;
	u64 longest_hold;
};

/* Who takes completions off a queue, and will turn the callbacks on when it finds no more. */
enum pollux_server {
	POLLUX_NOBODY,
	POLLUX_INTERRUPT,
	POLLUX_WORKER,
};

/**
 * struct pollux_queue - a virtqueue, and who waits for it
 * @lock: for everything below but @counters, and for the virtqueue; interrupts off
 * @vq: the virtqueue
 * @used: the used ring's index, for a look without the lock; NULL with a packed ring or without a ring
 * @taken: how many used entries were taken so far, modulo 2^16: where @used was
 * @armed: callbacks are on
 * @stopped: there is no device any more
 * @starved: a request waits for room in the ring
 * @room: there is some since; the block layer is to be told
 * @watched: @watch is due
 * @polled_lately: a poll has found something since @watch ran
 * @urgent: @parked is for the worker: a sleeper waits for a request in it, or for a tag
 * @packed: its ring is a packed one
 * @flushes_polled: flushes may end polled bios
 * @stolen: how often polls have taken in a row what an interrupt was raised for
 * @server: who looks after completions now
 * @plain: interrupt-driven requests in the ring
 * @polled: polled ones in the ring
 * @waiting: requests in @parked
 * @depth: tags there are
 * @parked: requests that were taken off the ring where they cannot be completed
 * @watch: completes what nobody polls for, and what was too much for an interrupt
 * @disk: what it is a queue of
 * @times: of @lock
 * @counters: see &enum pollux_event
 * @name: the virtqueue's
 */
struct pollux_queue {
	spinlock_t lock; /* what follows, and the virtqueue */
	struct virtqueue *vq;
	const __virtio16 __rcu *used;
	u16 taken;
	bool armed;
	bool stopped;
	bool starved;
	bool room;
	bool watched;
	bool polled_lately;
	bool urgent;
	bool packed;
	bool flushes_polled;
	unsigned int stolen;
	enum pollux_server server;
	unsigned int plain;
	unsigned int polled;
	unsigned int waiting;
	unsigned int depth;
	struct pollux_chain parked;
	struct delayed_work watch;
	struct pollux_disk *disk;
	struct pollux_lock_times times;
	struct pollux_counters __percpu *counters;
	char name[16];
} ____cacheline_aligned_in_smp;

/**
 * struct pollux_disk - a device
 * @vdev: the virtio device; NULL once it is gone (under @gone)
 * @gone: held while the device is used by callers who may come after it has gone
 * @switching: held while the attribute switches the device's cache
 * @gendisk: the disk
 * @tags: its tags
 * @config_work: looks at the capacity after a change of the configuration
 * @broken_work: checks whether the device has gone: when a queue sees that it may have, and while a caller waits for
 *	its requests
 * @draining: a caller waits
 * @removing: no @config_work any more
 * @has_vqs: its queues have virtqueues
 * @asleep: requests wait: pollux_freeze() was called, and pollux_restore() not yet
 * @index: the disk's, from which its name and its minors are made
 * @queue_count: of @queues
 * @queues: its queues
 * @debugfs: its folder
 */
struct pollux_disk {
	struct virtio_device *vdev;
	struct mutex gone; /* @vdev */
	struct mutex switching; /* of the cache, by its attribute */
	struct gendisk *gendisk;
	struct blk_mq_tag_set tags;
	struct work_struct config_work;
	struct delayed_work broken_work;
	bool draining;
	bool removing;
	bool has_vqs;
	bool asleep;
	int index;
	unsigned int queue_count;
	struct pollux_queue *queues;
	struct dentry *debugfs;
};

static inline struct pollux_queue *queue_of(struct blk_mq_hw_ctx *hctx)
{
	struct pollux_disk *disk = hctx->queue->queuedata;

	return &disk->queues[hctx->queue_num];
}

static inline void count_event(struct pollux_queue *queue, enum pollux_event event)
{
	this_cpu_inc(queue->counters->count[event]);
}

/* The same with interrupts off, as under the queue's lock: some architectures turn them off for the other one. */
static inline void count_event_locked(struct pollux_queue *queue, enum pollux_event event)
{
	__this_cpu_inc(queue->counters->count[event]);
}

/* config.c */
int pollux_check_config(struct virtio_device *vdev);
int pollux_read_limits(struct pollux_disk *disk, struct pollux_limits *limits);
bool pollux_write_cache(struct virtio_device *vdev);
void pollux_restore_write_cache(struct pollux_disk *disk);
void pollux_update_capacity(struct pollux_disk *disk);

/* gone.c */
void pollux_broken(struct work_struct *work);
void pollux_watch_device(struct pollux_disk *disk);
void pollux_shut_down(struct pollux_disk *disk);
void pollux_power_off(struct virtio_device *vdev);
int pollux_freeze(struct virtio_device *vdev);
int pollux_restore(struct virtio_device *vdev);
void pollux_wake(struct pollux_disk *disk);

/* submit.c */
extern const struct blk_mq_ops pollux_mq_ops;

/* queue.c */
void pollux_interrupt(struct virtqueue *vq);
void pollux_watch(struct work_struct *work);

/* queues.c */
extern struct workqueue_struct *pollux_workers;
int pollux_queues_alloc(struct pollux_disk *disk);
void pollux_queues_free(struct pollux_disk *disk);
int pollux_queues_find(struct pollux_disk *disk);
void pollux_queues_lose(struct pollux_disk *disk);
unsigned int pollux_queues_depth(struct pollux_disk *disk);
void pollux_queues_close(struct pollux_disk *disk);
void pollux_queues_stop(struct pollux_disk *disk);
void pollux_queues_fail(struct pollux_disk *disk);
bool pollux_queues_broken(struct pollux_disk *disk);

/* request.c */
blk_status_t pollux_prepare(struct pollux_queue *queue, struct request *rq);
void pollux_unprepare(struct request *rq);
int pollux_add(struct pollux_queue *queue, struct pollux_request *request);
blk_status_t pollux_status(const struct pollux_request *request);

/* sysfs.c */
extern const struct attribute_group *pollux_attribute_groups[];

/* stats.c */
void pollux_stats_init(void);
void pollux_stats_exit(void);
void pollux_stats_add(struct pollux_disk *disk);
void pollux_stats_remove(struct pollux_disk *disk);

#endif
