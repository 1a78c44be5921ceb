package failpoint

// Point is the name of a place in the code: the area, a slash, the moment.
type Point string

// Points returns the place of every point. Each has one call of Hit.
func Points() map[Point]string {
	return map[Point]string{
		"prepare/before-ready":       "all data of a run is stored, its mark is not",
		"filter/after-group":         "a problem of a filter is sampled and stored",
		"filter/before-result":       "all problems of a filter are sampled, its result is not stored",
		"evaluate/after-group":       "a problem of an evaluation is sampled and stored",
		"evaluate/before-record":     "all problems of an evaluation are sampled, its record is not stored",
		"evaluate/before-result":     "the trajectories of an evaluation are stored, its numbers are not",
		"judge/before-verdict":       "the steps of a stage are judged, the verdict is not stored",
		"judge/before-gate":          "the policy after SFT is judged, the verdict is not stored",
		"sampling/before-group":      "a group of a step is sampled and not stored",
		"sampling/after-group":       "a group of a step is stored",
		"sampling/before-part":       "the trajectories of a group have ended or are cut, the group is not stored",
		"sampling/after-part":        "a group is stored that goes on under a newer policy",
		"sampling/before-samples":    "a group of a step is stored, the samples of it are not",
		"sampling/before-shard":      "all groups of a shard are stored, the record of them is not",
		"batch/before-drop":          "the batch of a step is stored, the records of its shards are not deleted",
		"batch/before-batch":         "all groups of a step are stored, its batch is not",
		"batch/before-stats":         "the batch of a step is stored, the record that names it is not",
		"train/before-update":        "the session stands before the update of a step",
		"train/after-update":         "the update of a step is made, nothing of it is stored",
		"train/before-result":        "policy and checkpoint of a step are stored, its result is not",
		"sft/after-update":           "a supervised update is made, nothing of it is stored",
		"sft/before-result":          "the checkpoint after supervised updates is stored, their result is not",
		"policy/after-shard":         "a shard of a policy is stored, others may not be",
		"policy/before-list":         "the shards of a policy are stored, the list of them is not",
		"policy/before-withdraw":     "the manifest of a policy is stored, the announcement of its shards stays",
		"policy/before-manifest":     "the files of a policy are stored, its manifest is not",
		"policy/before-ref":          "the manifest of a policy is stored, the record that names it is not",
		"checkpoint/before-shards":   "the state is copied to the host, nothing of its checkpoint is stored",
		"checkpoint/after-shard":     "a shard of a checkpoint is stored, others may not be",
		"checkpoint/before-manifest": "the shards of a checkpoint are stored, its manifest is not",
		"checkpoint/before-head":     "the manifest of a checkpoint is stored, the head names an older one",
		"checkpoint/before-withdraw": "the head names a checkpoint, its announcement stays",
		"checkpoint/before-prune":    "a checkpoint is stored, older ones are not deleted",
		"policy/before-prune":        "old checkpoints are deleted, old policies are not",
		"policy/before-release":      "an old policy is deleted, the shards that it alone named are not",
		"policy/between-deletes":     "a policy is no longer named, its files are still there",
		"record/before-step":         "a step is done, its record is not stored",
		"record/before-manifest":     "the record of a step is stored, its manifest is not",
		"finish/before-closing":      "the series of a run is stored, its last manifest is not",
		"finish/before-summary":      "the last manifest of a run is stored, its summary is not",
	}
}
