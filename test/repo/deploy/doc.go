// Package deploy renders what users install, from the kustomizations below deploy.
package deploy
