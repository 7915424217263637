/** The version in package.json, which `npm run make versions` copies here. */
export const VERSION = '0.2.0';
