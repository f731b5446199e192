/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that this module is built for, 6.1 to 7.x. Kbuild finds out by looking at their
 * headers (POLLUX_HAS_…); nothing asks for a version.
 */
#ifndef POLLUX_COMPAT_H
#define POLLUX_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/interrupt.h>
#include <linux/virtio_config.h>
#ifdef POLLUX_HAS_VIRTIO_MAP_QUEUES
#include <linux/blk-mq-virtio.h>
#endif

struct pollux_disk;

/* What the disk can do, in bytes and sectors of 512 bytes. Zero: not at all. */
struct pollux_limits {
	unsigned int segments;
	unsigned int segment_size;
	unsigned int logical_block;
	unsigned int physical_block;
	unsigned int alignment_offset;
	unsigned int io_min;
	unsigned int io_opt;
	unsigned int discard_sectors;
	unsigned int discard_segments;
	unsigned int discard_granularity;
	unsigned int erase_sectors;
	unsigned int zeroes_sectors;
	bool write_cache;
};

/* config.c */
struct gendisk *compat_alloc_disk(struct blk_mq_tag_set *tags, const struct pollux_limits *limits, void *data);
int compat_set_write_cache(struct request_queue *queue, bool on);

/* queues.c */
int compat_find_vqs(struct pollux_disk *disk, struct virtqueue **vqs);

/* Lists of requests: linked by a struct of head and tail since 6.13, by the first one before. */
#ifdef POLLUX_HAS_RQ_LIST
#define COMPAT_RQ_LIST struct rq_list
#define compat_rq_list_init(list) rq_list_init(list)
#define compat_rq_list_add(list, rq) rq_list_add_tail(list, rq)
#else
#define COMPAT_RQ_LIST struct request *
#define compat_rq_list_init(list) (*(list) = NULL)
#define compat_rq_list_add(list, rq) rq_list_add(list, rq)
#endif

/*
 * Has a request of a batch found by its tag, by which those in flight are counted. Before 6.7 that is for the driver to
 * do; later blk_mq_start_request() does the same.
 */
static inline void compat_set_tag(struct request *rq)
{
	rq->mq_hctx->tags->rqs[rq->tag] = rq;
}

static inline int compat_map_sg(struct request *rq, struct scatterlist *list)
{
#ifdef POLLUX_HAS_MAP_SG_OF_REQUEST
	return blk_rq_map_sg(rq, list);
#else
	return blk_rq_map_sg(rq->q, rq, list);
#endif
}

static inline int compat_map_kern(struct request *rq, void *buffer, unsigned int length)
{
#ifdef POLLUX_HAS_MAP_KERN_OF_REQUEST
	return blk_rq_map_kern(rq, buffer, length, GFP_KERNEL);
#else
	return blk_rq_map_kern(rq->q, rq, buffer, length, GFP_KERNEL);
#endif
}

static inline void compat_map_queues(struct blk_mq_queue_map *map, struct virtio_device *vdev)
{
#ifdef POLLUX_HAS_VIRTIO_MAP_QUEUES
	blk_mq_virtio_map_queues(map, vdev, 0);
#else
	blk_mq_map_hw_queues(map, &vdev->dev, 0);
#endif
}

static inline unsigned int compat_freeze(struct request_queue *queue)
{
#ifdef POLLUX_HAS_FREEZE_FLAGS
	return blk_mq_freeze_queue(queue);
#else
	blk_mq_freeze_queue(queue);
	return 0;
#endif
}

static inline void compat_unfreeze(struct request_queue *queue, unsigned int flags)
{
#ifdef POLLUX_HAS_FREEZE_FLAGS
	blk_mq_unfreeze_queue(queue, flags);
#else
	blk_mq_unfreeze_queue(queue);
#endif
}

#ifdef POLLUX_HAS_SHOULD_MERGE
#define COMPAT_TAG_FLAGS BLK_MQ_F_SHOULD_MERGE
#else
#define COMPAT_TAG_FLAGS 0
#endif

#endif
