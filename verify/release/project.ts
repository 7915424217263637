// The project's own identity: what its releases are signed as. The first release sets it; until then it is empty, and callers name a repository.

export interface Project {
  /** OWNER/REPO on GitHub. */
  readonly repository: string;
  /** GitHub's numbers of both, which stay where a name is given to somebody else. */
  readonly repositoryId: string;
  readonly ownerId: string;
}

export const PROJECT: Project | null = null;
