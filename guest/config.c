// SPDX-License-Identifier: GPL-2.0
/*
 * The device's configuration space (VIRTIO 1.3, 5.2.4), as limits of the disk.
 */
#include <linux/string_helpers.h>

#include "pollux_blk.h"

/* A field of 32 bits that FEATURE announces; zero without it. */
#define read_if(vdev, feature, field)							\
({											\
	u32 value_ = 0;									\
											\
	virtio_cread_feature(vdev, feature, struct virtio_blk_config, field, &value_);	\
	value_;										\
})

#ifdef VIRTIO_BLK_F_ZONED
/* Has the disk zones that must be written in order? One whose zones are a hint serves as a disk without them, too. */
static bool has_zones(struct virtio_device *vdev)
{
	u8 model = VIRTIO_BLK_Z_NONE;

	virtio_cread_feature(vdev, VIRTIO_BLK_F_ZONED, struct virtio_blk_config, zoned.model, &model);
	return model != VIRTIO_BLK_Z_NONE && model != VIRTIO_BLK_Z_HA;
}
#else
static bool has_zones(struct virtio_device *vdev)
{
	return false;
}
#endif

/**
 * pollux_check_config() - refuses what no disk can be made of
 * @vdev: the device
 *
 * Return: 0 or an error.
 */
int pollux_check_config(struct virtio_device *vdev)
{
	if (!vdev->config->get) {
		dev_err(&vdev->dev, "it has no configuration space\n");
		return -EINVAL;
	}
	if (has_zones(vdev)) {
		dev_err(&vdev->dev, "zoned disks are not supported\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

static void read_topology(struct virtio_device *vdev, struct pollux_limits *limits)
{
	u8 exponent = 0, offset = 0;
	u16 io_min = 0;

	if (!virtio_has_feature(vdev, VIRTIO_BLK_F_TOPOLOGY))
		return;
	virtio_cread(vdev, struct virtio_blk_config, physical_block_exp, &exponent);
	virtio_cread(vdev, struct virtio_blk_config, alignment_offset, &offset);
	virtio_cread(vdev, struct virtio_blk_config, min_io_size, &io_min);
	/* The size must stay a number of 32 bits. */
	if (exponent < 32 - ilog2(limits->logical_block))
		limits->physical_block = limits->logical_block << exponent;
	limits->alignment_offset = limits->logical_block * offset;
	limits->io_min = limits->logical_block * io_min;
	limits->io_opt = limits->logical_block * read_if(vdev, VIRTIO_BLK_F_TOPOLOGY, opt_io_size);
}

static void read_discard(struct virtio_device *vdev, struct pollux_limits *limits)
{
	u32 alignment;

	/* A device that offers these without a limit has none: virtio_blk takes it so. */
	if (virtio_has_feature(vdev, VIRTIO_BLK_F_WRITE_ZEROES))
		limits->zeroes_sectors = read_if(vdev, VIRTIO_BLK_F_WRITE_ZEROES, max_write_zeroes_sectors) ?: UINT_MAX;
	if (virtio_has_feature(vdev, VIRTIO_BLK_F_DISCARD)) {
		limits->discard_sectors = read_if(vdev, VIRTIO_BLK_F_DISCARD, max_discard_sectors) ?: UINT_MAX;
		limits->discard_segments = read_if(vdev, VIRTIO_BLK_F_DISCARD, max_discard_seg);
		alignment = read_if(vdev, VIRTIO_BLK_F_DISCARD, discard_sector_alignment);
		limits->discard_granularity = alignment << SECTOR_SHIFT;
	}
	if (virtio_has_feature(vdev, VIRTIO_BLK_F_SECURE_ERASE)) {
		limits->erase_sectors = read_if(vdev, VIRTIO_BLK_F_SECURE_ERASE, max_secure_erase_sectors);
		alignment = read_if(vdev, VIRTIO_BLK_F_SECURE_ERASE, secure_erase_sector_alignment);
		/* The block layer knows one granularity for both. */
		limits->discard_granularity = max(limits->discard_granularity, alignment << SECTOR_SHIFT);
	}
	if (!limits->discard_granularity)
		limits->discard_granularity = limits->logical_block;
	limits->discard_segments = clamp(limits->discard_segments, 1u, 256u);
}

/**
 * pollux_read_limits() - what the device says it can do
 * @disk: which; its queues have virtqueues
 * @limits: filled in. Each field of the device is read once: it may say something else the next time.
 *
 * Return: 0, or an error if no disk can be made of it.
 */
int pollux_read_limits(struct pollux_disk *disk, struct pollux_limits *limits)
{
	struct virtio_device *vdev = disk->vdev;
	unsigned int index, size, most = UINT_MAX;

	memset(limits, 0, sizeof(*limits));
	/* No chain may be longer than the ring (VIRTIO 1.3, 2.7.5.3.1): a header and a status are beside its data. */
	for (index = 0; index < disk->queue_count; index++)
		most = min(most, virtqueue_get_vring_size(disk->queues[index].vq));
	most = max(most, 3u) - 2;
	limits->segments = max(read_if(vdev, VIRTIO_BLK_F_SEG_MAX, seg_max), 1u);
	limits->segments = min3(limits->segments, most, (unsigned int)USHRT_MAX - 2);

	limits->segment_size = min_t(size_t, virtio_max_dma_size(vdev), UINT_MAX);
	size = read_if(vdev, VIRTIO_BLK_F_SIZE_MAX, size_max);
	if (size && size < PAGE_SIZE) {
		dev_err(&vdev->dev, "segments of %u bytes are too small: a page has %lu\n", size, PAGE_SIZE);
		return -EINVAL;
	}
	if (size)
		limits->segment_size = min(limits->segment_size, size);

	limits->logical_block = SECTOR_SIZE;
	if (virtio_has_feature(vdev, VIRTIO_BLK_F_BLK_SIZE))
		limits->logical_block = read_if(vdev, VIRTIO_BLK_F_BLK_SIZE, blk_size);
	if (blk_validate_block_size(limits->logical_block)) {
		dev_err(&vdev->dev, "blocks of %u bytes are not supported\n", limits->logical_block);
		return -EINVAL;
	}
	limits->physical_block = limits->logical_block;
	limits->write_cache = pollux_write_cache(vdev);
	read_topology(vdev, limits);
	read_discard(vdev, limits);
	return 0;
}

/**
 * pollux_write_cache() - must writes be flushed?
 * @vdev: the device
 *
 * Return: whether the device has a volatile cache, and it is on.
 */
bool pollux_write_cache(struct virtio_device *vdev)
{
	u8 writeback;

	if (!virtio_cread_feature(vdev, VIRTIO_BLK_F_CONFIG_WCE, struct virtio_blk_config, wce, &writeback))
		return writeback;
	return virtio_has_feature(vdev, VIRTIO_BLK_F_FLUSH);
}

/**
 * pollux_restore_write_cache() - has the device use its cache as before its reset
 * @disk: whose requests wait. A device is free to begin with the cache on, and nobody would flush it.
 */
void pollux_restore_write_cache(struct pollux_disk *disk)
{
	u8 writeback = bdev_write_cache(disk->gendisk->part0);

	if (virtio_has_feature(disk->vdev, VIRTIO_BLK_F_CONFIG_WCE))
		virtio_cwrite(disk->vdev, struct virtio_blk_config, wce, &writeback);
}

/**
 * pollux_update_capacity() - makes the disk as large as the device says
 * @disk: which. Whoever watches it gets an uevent, unless it is not there yet.
 */
void pollux_update_capacity(struct pollux_disk *disk)
{
	char binary[16], decimal[16];
	u64 capacity;

	virtio_cread(disk->vdev, struct virtio_blk_config, capacity, &capacity);
	/* Its bytes must be countable. */
	capacity = min_t(u64, capacity, LLONG_MAX >> SECTOR_SHIFT);
	if (!disk_live(disk->gendisk)) {
		set_capacity(disk->gendisk, capacity);
		return;
	}
	string_get_size(capacity, SECTOR_SIZE, STRING_UNITS_2, binary, sizeof(binary));
	string_get_size(capacity, SECTOR_SIZE, STRING_UNITS_10, decimal, sizeof(decimal));
	if (set_capacity_and_notify(disk->gendisk, capacity))
		dev_info(&disk->vdev->dev, "%s is now %s (%s)\n", disk->gendisk->disk_name, decimal, binary);
}

#ifdef POLLUX_HAS_LIMITS
struct gendisk *compat_alloc_disk(struct blk_mq_tag_set *tags, const struct pollux_limits *limits, void *data)
{
	struct queue_limits queue = {
		.max_hw_sectors = UINT_MAX,
		.max_segments = limits->segments,
		.max_segment_size = limits->segment_size,
		.logical_block_size = limits->logical_block,
		.physical_block_size = limits->physical_block,
		.alignment_offset = limits->alignment_offset,
		.io_min = limits->io_min,
		.io_opt = limits->io_opt,
		.max_hw_discard_sectors = limits->discard_sectors,
		.max_discard_segments = limits->discard_segments,
		.discard_granularity = limits->discard_granularity,
		.max_secure_erase_sectors = limits->erase_sectors,
		.max_write_zeroes_sectors = limits->zeroes_sectors,
	};
	struct gendisk *disk;

#ifdef POLLUX_HAS_FEATURES
	if (limits->write_cache)
		queue.features |= BLK_FEAT_WRITE_CACHE;
#endif
	disk = blk_mq_alloc_disk(tags, &queue, data);
#ifndef POLLUX_HAS_FEATURES
	if (!IS_ERR(disk))
		blk_queue_write_cache(disk->queue, limits->write_cache, false);
#endif
	return disk;
}
#else
struct gendisk *compat_alloc_disk(struct blk_mq_tag_set *tags, const struct pollux_limits *limits, void *data)
{
	struct gendisk *disk = blk_mq_alloc_disk(tags, data);
	struct request_queue *queue;

	if (IS_ERR(disk))
		return disk;
	queue = disk->queue;
	blk_queue_max_hw_sectors(queue, UINT_MAX);
	blk_queue_max_segments(queue, limits->segments);
	blk_queue_max_segment_size(queue, limits->segment_size);
	blk_queue_logical_block_size(queue, limits->logical_block);
	blk_queue_physical_block_size(queue, limits->physical_block);
	blk_queue_alignment_offset(queue, limits->alignment_offset);
	if (limits->io_min)
		blk_queue_io_min(queue, limits->io_min);
	if (limits->io_opt)
		blk_queue_io_opt(queue, limits->io_opt);
	queue->limits.discard_granularity = limits->discard_granularity;
	blk_queue_max_discard_sectors(queue, limits->discard_sectors);
	blk_queue_max_discard_segments(queue, limits->discard_segments);
	blk_queue_max_secure_erase_sectors(queue, limits->erase_sectors);
	blk_queue_max_write_zeroes_sectors(queue, limits->zeroes_sectors);
	blk_queue_write_cache(queue, limits->write_cache, false);
	return disk;
}
#endif

int compat_set_write_cache(struct request_queue *queue, bool on)
{
#ifdef POLLUX_HAS_FEATURES
	struct queue_limits limits = queue_limits_start_update(queue);
#ifndef POLLUX_HAS_UPDATE_FROZEN
	unsigned int flags;
	int error;
#endif

	if (on)
		limits.features |= BLK_FEAT_WRITE_CACHE;
	else
		limits.features &= ~BLK_FEAT_WRITE_CACHE;
#ifdef POLLUX_HAS_UPDATE_FROZEN
	return queue_limits_commit_update_frozen(queue, &limits);
#else
	flags = compat_freeze(queue);
	error = queue_limits_commit_update(queue, &limits);
	compat_unfreeze(queue, flags);
	return error;
#endif
#else
	blk_queue_write_cache(queue, on, false);
	return 0;
#endif
}
