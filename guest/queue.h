/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the two halves of the hot path share: queue.c and submit.c.
 */
#ifndef POLLUX_QUEUE_H
#define POLLUX_QUEUE_H

#include <linux/jump_label.h>
#include <linux/timekeeping.h>

#include "pollux_blk.h"

/* How long a polled request may lie without a poll: within twice this it is completed. */
#define POLLUX_WATCH max(HZ / 200, 1)

#ifdef POLLUX_BLK_TEST
extern bool pollux_quiet_while_polled;
extern unsigned int pollux_slow_us;
#else
#define pollux_quiet_while_polled false
#define pollux_slow_us 0
#endif

/* The queue's lock, held. */
struct pollux_hold {
	unsigned long flags;
	u64 asked;	/* in ns; 0: not measured */
	u64 taken;
};

DECLARE_STATIC_KEY_FALSE(pollux_lock_timed);

/* stats.c */
void pollux_lock_and_time(struct pollux_queue *queue, struct pollux_hold *hold)
	__acquires(&queue->lock);
void pollux_time_lock(struct pollux_queue *queue, const struct pollux_hold *hold);

static inline void queue_lock(struct pollux_queue *queue, struct pollux_hold *hold)
	__acquires(&queue->lock)
{
	if (static_branch_unlikely(&pollux_lock_timed)) {
		pollux_lock_and_time(queue, hold);
		return;
	}
	hold->asked = 0;
	spin_lock_irqsave(&queue->lock, hold->flags);
}

static inline bool queue_trylock(struct pollux_queue *queue, struct pollux_hold *hold)
{
	hold->asked = 0;
	return spin_trylock_irqsave(&queue->lock, hold->flags);
}

static inline void queue_unlock(struct pollux_queue *queue, struct pollux_hold *hold)
	__releases(&queue->lock)
{
	if (static_branch_unlikely(&pollux_lock_timed) && hold->asked)
		pollux_time_lock(queue, hold);
	spin_unlock_irqrestore(&queue->lock, hold->flags);
}

/* What is to be done once the lock is released. */
struct pollux_duties {
	bool kick;	/* the device */
	bool watch;	/* start the queue's watch */
	bool worker;	/* have it run now */
	bool room;	/* tell the block layer that a request may find room in the ring now */
	bool broken;	/* the device has broken the ring */
};

/* These are called under the queue's lock. */
bool pollux_needs_calls(const struct pollux_queue *queue);
bool pollux_arm(struct pollux_queue *queue);
unsigned int pollux_take(struct pollux_queue *queue, struct pollux_chain *others,
			 struct pollux_chain *for_tasks, unsigned int most);
void pollux_collect(struct pollux_queue *queue, struct pollux_duties *duties);

/* These are not. */
void pollux_kick(struct pollux_queue *queue);
void pollux_discharge(struct pollux_queue *queue, const struct pollux_duties *duties);
void pollux_complete_request(struct request *rq);
int pollux_poll(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *batch);

#endif
