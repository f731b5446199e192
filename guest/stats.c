// SPDX-License-Identifier: GPL-2.0
/*
 * What is counted, in debugfs: /sys/kernel/debug/pollux_blk/DISK, a line for each queue.
 */
#include <linux/debugfs.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>

#include "pollux_blk.h"

static const char *const names[POLLUX_EVENTS] = {
	[POLLUX_SUBMITTED] = "requests",
	[POLLUX_SUBMITTED_POLLED] = "polled",
	[POLLUX_KICKS] = "kicks",
	[POLLUX_INTERRUPTS] = "interrupts",
	[POLLUX_IDLE_INTERRUPTS] = "idle-interrupts",
	[POLLUX_POLLS_FOUND] = "polls-found",
	[POLLUX_POLLS_VAIN] = "polls-vain",
	[POLLUX_PARKED] = "parked",
	[POLLUX_BY_WORKER] = "by-worker",
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

static int disk_show(struct seq_file *file, void *unused)
{
	struct pollux_disk *disk = file->private;
	unsigned int index, event;

	for (index = 0; index < disk->queue_count; index++) {
		seq_printf(file, "queue=%u", index);
		for (event = 0; event < POLLUX_EVENTS; event++)
			seq_printf(file, " %s=%llu", names[event], sum(&disk->queues[index], event));
		seq_putc(file, '\n');
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
