package capture

import "testing"

func TestNetworkKind(t *testing.T) {
	t.Parallel()
	for want, magic := range map[string]uint32{ // as statfs(2) lists them
		"nfs": 0x6969, "smb": 0xff534d42, "fuse": 0x65735546, "9p": 0x01021997, "ceph": 0x00c36400, "afs": 0x5346414f,
		"lustre": 0x0bd00bd0, "": 0xef53, // ext4
	} {
		if got := networkKind(magic); got != want {
			t.Errorf("networkKind(%#x): got %q, want %q", magic, got, want)
		}
	}
	if got := networkFS(t.TempDir() + "/none"); got != "" {
		t.Errorf("networkFS of what is not there: got %q, want none", got)
	}
}
