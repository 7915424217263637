/** The version in package.json, which `npm run make versions` copies here. */
export const VERSION = '0.2.0';

/**
 * Whether npm and PyPI have this version. `npm run make versions` sets it for a release, and writes the registries' commands into the
 * documentation and the page; until then they are the commands of a copy of the repository.
 */
export const PUBLISHED: boolean = false;
