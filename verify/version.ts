/** Of this software. `npm run` scripts keep it equal to package.json's. */
export const VERSION = '0.2.0';
