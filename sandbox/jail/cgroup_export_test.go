package jail

// OOMKills counts what the kernel killed in the cgroup of j; -1 without one.
func (j *Jail) OOMKills() int {
	if j.group == nil {
		return -1
	}
	kills, _ := j.group.oomKills()
	return kills
}

// CgroupDirs lists the directories of the cgroup of j.
func (j *Jail) CgroupDirs() []string {
	if j.group == nil {
		return nil
	}
	return j.group.dirs
}
