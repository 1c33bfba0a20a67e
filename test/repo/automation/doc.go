// Package automation tests what runs by itself on the forge: workflows, updates of what is pinned, and issue forms.
package automation
