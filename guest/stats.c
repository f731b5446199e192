// SPDX-License-Identifier: GPL-2.0
/*
 * What is counted, in debugfs: /sys/kernel/debug/pollux_blk/DISK, a line for each queue.
 *
 * How long the lock of a queue is waited for and held is measured while the parameter time_locks is set, as the
 * kernel's lock_stat does it. It costs nothing while it is not.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>

#include "queue.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

DEFINE_STATIC_KEY_FALSE(pollux_lock_timed);

static bool time_locks;

static int set_time_locks(const char *value, const struct kernel_param *parameter)
{
	int error = param_set_bool(value, parameter);

	if (error)
		return error;
	if (time_locks)
		static_branch_enable(&pollux_lock_timed);
	else
		static_branch_disable(&pollux_lock_timed);
	return 0;
}

static const struct kernel_param_ops time_locks_ops = {
	.flags = KERNEL_PARAM_OPS_FL_NOARG,
	.set = set_time_locks,
	.get = param_get_bool,
};
module_param_cb(time_locks, &time_locks_ops, &time_locks, 0644);
MODULE_PARM_DESC(time_locks, "Measure how long the locks of queues are waited for and held");

/* Takes the queue's lock. Only one that somebody else holds is waited for: reading the clock is no waiting. */
void pollux_lock_and_time(struct pollux_queue *queue, struct pollux_hold *hold)
	__acquires(&queue->lock)
{
	u64 asked = 0;

	if (!queue_trylock(queue, hold)) {
		asked = ktime_get_ns();
		spin_lock_irqsave(&queue->lock, hold->flags);
	}
	hold->taken = ktime_get_ns();
	hold->asked = asked ?: hold->taken;
}

/* Under the lock, as the last thing. */
void pollux_time_lock(struct pollux_queue *queue, const struct pollux_hold *hold)
{
	u64 waited = hold->taken - hold->asked, held = ktime_get_ns() - hold->taken;
	struct pollux_lock_times *times = &queue->times;

	times->taken++;
	times->contended += hold->asked != hold->taken;
	times->waited += waited;
	times->held += held;
	times->longest_wait = max(times->longest_wait, waited);
	times->longest_hold = max(times->longest_hold, held);
	trace_pollux_blk_lock(queue, waited, held);
}

static const char *const names[POLLUX_EVENTS] = {
	[POLLUX_SUBMITTED] = "requests",
	[POLLUX_SUBMITTED_POLLED] = "polled",
	[POLLUX_KICKS] = "kicks",
	[POLLUX_INTERRUPTS] = "interrupts",
	[POLLUX_IDLE_INTERRUPTS] = "idle-interrupts",
	[POLLUX_POLLS_FOUND] = "polls-found",
	[POLLUX_POLLS_EMPTY] = "polls-empty",
	[POLLUX_PARKED] = "parked",
	[POLLUX_BY_WORKER] = "by-worker",
	[POLLUX_OVERDUE] = "overdue",
	[POLLUX_OVER_BUDGET] = "over-budget",
	[POLLUX_ARMED] = "armed",
	[POLLUX_DISARMED] = "disarmed",
};

static struct dentry *folder;

static u64 sum(const struct pollux_queue *queue, enum pollux_event event)
{
	u64 total = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		total += READ_ONCE(per_cpu_ptr(queue->counters, cpu)->count[event]);
	return total;
}

static void show_queue(struct seq_file *file, struct pollux_queue *queue)
{
	struct pollux_lock_times times;
	unsigned int event;

	spin_lock_irq(&queue->lock);
	times = queue->times;
	spin_unlock_irq(&queue->lock);
	for (event = 0; event < POLLUX_EVENTS; event++)
		seq_printf(file, " %s=%llu", names[event], sum(queue, event));
	seq_printf(file, " locks-timed=%llu locks-contended=%llu", times.taken, times.contended);
	seq_printf(file, " lock-wait-ns=%llu longest-wait-ns=%llu", times.waited, times.longest_wait);
	seq_printf(file, " lock-hold-ns=%llu longest-hold-ns=%llu\n", times.held, times.longest_hold);
}

static int disk_show(struct seq_file *file, void *unused)
{
	struct pollux_disk *disk = file->private;
	unsigned int index;

	for (index = 0; index < disk->queue_count; index++) {
		seq_printf(file, "queue=%u", index);
		show_queue(file, &disk->queues[index]);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(disk);

void pollux_stats_add(struct pollux_disk *disk)
{
	disk->debugfs = debugfs_create_file(disk->gendisk->disk_name, 0444, folder, disk, &disk_fops);
}

void pollux_stats_remove(struct pollux_disk *disk)
{
	debugfs_remove(disk->debugfs);
}

void pollux_stats_init(void)
{
	folder = debugfs_create_dir("pollux_blk", NULL);
}

void pollux_stats_exit(void)
{
	debugfs_remove(folder);
}
